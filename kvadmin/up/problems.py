from __future__ import annotations


class CannotRun(Exception):
    """kvadmin cannot start here; the text is a sentence that says why and what to do."""
