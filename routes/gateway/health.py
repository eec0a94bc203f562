"""Whether a target answers, as far as requests through this gateway tell. Pure.

| state | meaning | leaves it when |
|---|---|---|
| closed | takes requests | it could not be reached, or failed FAILURES times in a row: open |
| open | takes none until ``opens_at`` | that time has come: half_open |
| half_open | one request is on its way as a probe | it answered: closed; it failed: open, for twice as long |

An answer below 500 is a sign of life, whatever the caller did wrong.
"""

from __future__ import annotations

from typing import Literal

FAILURES = 3
FIRST_S = 1.0
LONGEST_S = 30.0


class Health:
    __slots__ = ("failures", "opens_at", "pause_s", "probing", "reason")

    def __init__(self) -> None:
        self.failures = 0
        self.pause_s = 0.0
        self.opens_at = 0.0
        self.probing = False
        self.reason = ""

    def state(self, now: float) -> Literal["closed", "open", "half_open"]:
        if not self.pause_s:
            return "closed"
        return "half_open" if self.probing or now >= self.opens_at else "open"

    def may_take(self, now: float) -> bool:
        return not self.pause_s or (now >= self.opens_at and not self.probing)

    def taken(self) -> bool:
        """A request is sent: it is the probe if the target is not closed. True if it is."""
        if self.pause_s:
            self.probing = True
        return self.probing

    def answered(self) -> bool:
        """True when this brings the target back."""
        back = bool(self.pause_s)
        self.failures, self.pause_s, self.probing, self.reason = 0, 0.0, False, ""
        return back

    def failed(self, now: float, reason: str, *, at_once: bool) -> bool:
        """``at_once`` for what cannot be reached. True when this ejects it (again)."""
        self.failures += 1
        if not (at_once or self.probing or self.failures >= FAILURES):
            return False
        if self.pause_s and not self.probing and now < self.opens_at:
            # those that were on their way when it was ejected say nothing new
            return False
        self.pause_s = min(self.pause_s * 2 or FIRST_S, LONGEST_S)
        self.opens_at = now + self.pause_s
        self.probing = False
        self.reason = reason
        return True

    def undecided(self) -> None:
        """A probe ended without telling (the caller left): the next request is one."""
        self.probing = False
