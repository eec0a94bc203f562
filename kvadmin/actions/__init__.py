"""Actions: every change that needs permission, audit, a task or a second row.

One file, one verb: ``verb_noun.py`` in an app's ``actions`` folder. View, API, task and command
call the same action and so behave alike.
"""

from kvadmin.actions.base import (
    Action,
    ActionError,
    Actor,
    Conflict,
    Denied,
    Invalid,
)

__all__ = ["Action", "ActionError", "Actor", "Conflict", "Denied", "Invalid"]
