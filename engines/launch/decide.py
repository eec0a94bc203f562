"""What to do about an engine, from what was seen of its processes. Pure: the reconcile's state table.

Only engines without an operation under way are decided on; an operation looks after its own engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Act(StrEnum):
    NOTHING = "nothing"
    #: the leader lives and the engine was ready before, or was adopted: ask it over HTTP
    ASK = "ask"
    #: the leader lives and has not been ready yet: take the start up where it is
    RESUME = "resume"
    #: it runs although a stop was asked for
    STOP = "stop"
    #: processes without their leader, or of a start that was given up
    END_SURVIVORS = "end_survivors"
    #: nothing is left of what was running
    ENDED = "ended"
    #: the host has been restarted since the launch
    REBOOTED = "rebooted"
    #: at rest and nothing is left: the start can be closed
    CLOSE = "close"


@dataclass(frozen=True)
class Seen:
    """``others`` counts live processes besides leader and wrapper."""

    same_boot: bool = True
    leader: bool = False
    wrapper: bool = False
    others: int = 0


AT_REST = frozenset({"stopped", "failed"})


def decide(
    observed: str,
    *,
    seen: Seen,
    ended: bool,
    was_ready: bool,
    stop_asked: bool,
    given_up: bool = False,
    adopted: bool = False,
) -> Act:
    """``ended``: the start was closed. ``given_up``: what lives of it is to be ended. ``was_ready``: it
    was, or says in its log that it listens. ``stop_asked``: a stop was ordered since the launch.
    An adopted engine has no start of ours to take up: it is only asked."""
    if not seen.same_boot:
        if observed in AT_REST:
            return Act.NOTHING if ended else Act.CLOSE
        return Act.REBOOTED
    if seen.leader:
        if ended or given_up:
            return Act.END_SURVIVORS
        if stop_asked:
            return Act.STOP
        return Act.ASK if adopted or (was_ready and observed not in AT_REST) else Act.RESUME
    if seen.others:
        return Act.END_SURVIVORS
    if seen.wrapper:
        # about to write the exit status
        return Act.END_SURVIVORS if ended or given_up else Act.NOTHING
    if observed in AT_REST:
        return Act.NOTHING if ended else Act.CLOSE
    return Act.ENDED


#: seconds an engine has to have been ready for its earlier failures to be forgotten
STABLE_S = 600
#: seconds before the first, second, ... restart in a row; after the last one no more is tried
BACKOFF_S = (5, 15, 60, 180, 600)


@dataclass(frozen=True)
class Change:
    """A change of state, ``at`` in seconds; ``by_person``: the operation behind it was a person's."""

    to: str
    at: float
    by_person: bool = False
    crash: bool = False


def failures_in_a_row(changes: Iterable[Change], now: float) -> int:
    """Crashes since the engine last held, or since a person last started it. Newest change first."""
    count, later = 0, now
    for change in changes:
        if change.to == "ready" and later - change.at >= STABLE_S:
            break
        if change.crash:
            count += 1
        if change.to == "starting" and change.by_person:
            break
        later = change.at
    return count
