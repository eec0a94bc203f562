"""Whether a target answers, as far as requests through this gateway tell. Pure.

| state | meaning | leaves it when |
|---|---|---|
| closed | takes requests | it could not be reached, or failed FAILURES times in a row: open |
| open | takes none until ``opens_at`` | that time has come: half_open |
| half_open | one request of all workers is its probe | it answered: closed; it failed: open, twice as long |

An answer below 500 is a sign of life, whatever the caller did wrong.

The numbers stand in a record that the gateway's workers may share (``healthfile.py``). Each is written whole
and read as it stands: what two workers learn at the same moment, both learn.
"""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence
from typing import Literal, Protocol

FAILURES = 3
FIRST_S = 1.0
LONGEST_S = 30.0

#: places of a record's numbers. Times are of time.monotonic, which processes of a machine share
FAILED, PAUSE_S, OPENS_AT, PROBED = range(4)
NUMBERS = 4


class Record(Protocol):
    """``reason`` is why the target was ejected, "" while it is not."""

    values: MutableSequence[float]
    reason: str

    def hold_probe(self) -> bool:
        """Whether the probe is this worker's now, until it leaves it or ends."""

    def leave_probe(self) -> None: ...

    def probe_is_held(self) -> bool:
        """Whether a worker that lives holds it."""


class OwnRecord:
    """One worker's own."""

    __slots__ = ("reason", "values")

    def __init__(self) -> None:
        self.values: MutableSequence[float] = array("d", bytes(8 * NUMBERS))
        self.reason = ""

    def hold_probe(self) -> bool:
        return True

    def leave_probe(self) -> None:
        pass

    def probe_is_held(self) -> bool:
        return True


class Health:
    __slots__ = ("_probe", "_probes", "_record", "_values")

    def __init__(self, record: Record | None = None) -> None:
        self._record: Record = record or OwnRecord()
        self._values = self._record.values
        #: number of the probe that is a request of this worker, 0 if none is; how many there were
        self._probe = self._probes = 0

    @property
    def failures(self) -> int:
        return int(self._values[FAILED])

    @property
    def pause_s(self) -> float:
        return self._values[PAUSE_S]

    @property
    def opens_at(self) -> float:
        return self._values[OPENS_AT]

    @opens_at.setter
    def opens_at(self, moment: float) -> None:
        self._values[OPENS_AT] = moment

    @property
    def reason(self) -> str:
        return self._record.reason

    def state(self, now: float) -> Literal["closed", "open", "half_open"]:
        values = self._values
        if not values[PAUSE_S]:
            return "closed"
        return "half_open" if values[PROBED] or now >= values[OPENS_AT] else "open"

    def may_take(self, now: float) -> bool:
        values = self._values
        return not values[PAUSE_S] or (now >= values[OPENS_AT] and not values[PROBED])

    def take(self, now: float) -> int | None:
        """A request is about to be sent: 0 if that is nothing special, the number of the probe it is, or None
        if the target may not be taken after all."""
        values = self._values
        if not values[PAUSE_S]:
            return 0
        if not self.may_take(now) or self._probe or not self._record.hold_probe():
            return None
        if not values[PAUSE_S] or now < values[OPENS_AT]:
            # another worker's probe ended just now
            self._record.leave_probe()
            return None if values[PAUSE_S] else 0
        values[PROBED] = 1.0
        self._probes += 1
        self._probe = self._probes
        return self._probe

    def answered(self) -> bool:
        """True when this brings the target back."""
        values = self._values
        if self._probe:
            self.undecided(self._probe)
        if not values[FAILED] and not values[PAUSE_S]:
            return False
        back = values[PAUSE_S] > 0
        values[FAILED] = values[PAUSE_S] = values[OPENS_AT] = 0.0
        if back:
            self._record.reason = ""
        return back

    def failed(self, now: float, reason: str, *, at_once: bool) -> bool:
        """``at_once`` for what cannot be reached. True when this ejects it (again)."""
        values = self._values
        values[FAILED] += 1
        if not (at_once or self._probe or values[FAILED] >= FAILURES):
            return False
        pause_s = values[PAUSE_S]
        if pause_s and now < values[OPENS_AT]:
            # those that were on their way when it was ejected say nothing new
            return False
        pause_s = min(pause_s * 2 or FIRST_S, LONGEST_S)
        values[OPENS_AT] = now + pause_s
        values[PAUSE_S] = pause_s
        self._record.reason = reason
        if self._probe:
            self.undecided(self._probe)
        return True

    def undecided(self, probe: int) -> None:
        """A probe is over, with or without telling anything: unless it brought the target back, the next
        request is one."""
        if probe and probe == self._probe:
            self._probe = 0
            self._values[PROBED] = 0.0
            self._record.leave_probe()

    def tend(self) -> None:
        """To be called a few times a second: the probe of a worker that ended is nobody's any more."""
        if self._values[PROBED] and not self._probe and not self._record.probe_is_held():
            self._values[PROBED] = 0.0
