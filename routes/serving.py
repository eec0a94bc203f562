"""What an engine of ours is to the routes that it serves, for pages and for the gateway. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from routes.gateway.records import TargetState

#: by engines.choices.EngineState. Unreachable is not dead: SSH or a poll failed, and whether the engine
#: answers the gateway finds out itself
STATES: dict[str, TargetState] = {
    "ready": "ready",
    "unreachable": "ready",
    "draining": "draining",
    "stopping": "draining",
}


def target_state(observed: str) -> TargetState:
    return STATES.get(observed, "down")


def served_name(given: str, served_names: Sequence[str], route: str) -> str:
    """The model name that is sent to a target: as ``given``, else the route's where the target goes by it
    too, so that nothing has to be renamed, else the target's first."""
    if given or not served_names or route in served_names:
        return given or route
    return str(served_names[0])
