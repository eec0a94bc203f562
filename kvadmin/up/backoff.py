"""How long to wait before a process that ended is started again. Pure."""

from __future__ import annotations

FIRST_S = 0.5
LONGEST_S = 30.0
#: a process that ran for this long was well; what ends it now is a new story
STEADY_S = 60.0


def failures_after(failures: int, ran_s: float) -> int:
    """Failures in a row, counting the one that just happened."""
    return 1 if ran_s >= STEADY_S else failures + 1


def delay(failures: int) -> float:
    """Seconds to wait after ``failures`` (1 or more) in a row."""
    return min(LONGEST_S, FIRST_S * 2 ** min(failures - 1, 16))
