"""What one worker holds of a key's limits, and how much of a limit it may be given. Pure.

Each limit of a key is one pool for all gateways, kept in Valkey (leases.py). A worker takes shares out of
it ahead of need and decides requests by its shares alone. Nothing is ever given out twice, so the
requests of all workers together stay within the limit; a token count can pass it by as much as the answers of
the requests in flight outgrow their estimates, and the pool is charged for that afterwards.

``now`` is Unix seconds everywhere; a window's id is the Unix millisecond, by Valkey's clock, it began in.
"""

from __future__ import annotations

from dataclasses import dataclass

#: limits below this are leased one request at a time while several workers share them
SMALL = 50
WINDOW_S = 60.0
WINDOW_MS = 60_000
#: how long an answer that there is nothing left is believed before Valkey is asked again
BELIEVE_S = 0.05
#: a share that nobody used for so long goes back
IDLE_S = 2.0
#: the share of the next window is leased in the last seconds of this one, if the key was used lately
AHEAD_S = 4.0
LATELY_S = 10.0


def grant(limit: int, left: int, need: int, want: int, lessees: int) -> int:
    """How much of a pool with ``left`` to give a lessee that needs ``need`` now and would like ``want``.

    Ahead of need it gets at most an equal part of half of what is left, so shares shrink with the pool and
    the last ones are single; of a small limit nothing but the need, unless it is the only lessee.
    leases.py has the same in Lua.
    """
    if left <= 0:
        return 0
    ahead = 0 if limit < SMALL and lessees > 1 else min(want, left // (2 * lessees))
    return min(left, max(need, ahead))


def part(limit: int, workers: int, number: int) -> int:
    """A worker's part of a limit when no pool can be asked: all parts make up the limit, none is 0."""
    return max(1, limit * (number + 1) // workers - limit * number // workers)


@dataclass(slots=True)
class Window:
    """Requests or tokens per minute: what is held for the present window, and for the one after.

    ``used`` counts reservations as used; ``used + available`` is what was leased. ``available`` falls
    below 0 when answers outgrew their estimates.
    """

    limit: int
    id: int = 0
    ends: float = 0.0
    used: int = 0
    available: int = 0
    #: what is held of the next window; None when it was not asked for
    ahead: int | None = None
    #: what the pool had left, not counting what is held here, at the last answer
    left: int = 0
    #: what was available after the last lease: half of it gone, more is asked for; 0 when nothing is kept
    share: int = 0

    def roll(self, now: float) -> None:
        """Go over to the next window if this one has ended at ``now``."""
        if now < self.ends:
            return
        if self.ahead is not None and now < self.ends + WINDOW_S:
            self.id += WINDOW_MS
            self.ends += WINDOW_S
            self.available = self.share = self.ahead
            self.left = self.limit - self.ahead
        else:
            self.id, self.ends, self.available, self.share, self.left = 0, 0.0, 0, 0, self.limit
        self.used, self.ahead = 0, None

    def take(self, amount: int) -> None:
        self.available -= amount
        self.used += amount

    def settle(self, reserved: int, spent: int, id: int) -> None:
        """What was reserved in window ``id`` became ``spent``. Of an earlier window only more counts."""
        more = spent - reserved
        if id == self.id or more > 0:
            self.used += more
            self.available -= more

    def tell(self) -> int:
        """What to tell the pool that this worker has of it, in all. A debt is in ``used`` already."""
        self.available = max(0, self.available)
        return self.used + self.available

    def give_back(self) -> bool:
        """Let go of what is not used; True if there was any."""
        kept, self.available = self.available, min(0, self.available)
        self.share = 0
        return kept > 0

    def leased_more(self, answer: WindowAnswer, now: float, server_ms: int, *, keep: bool) -> None:
        """Take an answer of the pool in. ``keep`` if what is not needed now stays here for later."""
        if answer.same:
            self.available += answer.granted
        else:
            self.used, self.available, self.ahead = 0, answer.mine, None
        self.id = answer.id
        self.ends = now + (answer.id + WINDOW_MS - server_ms) / 1000
        self.left = answer.left
        if answer.ahead is not None:
            self.ahead = answer.ahead
        self.share = self.available if keep else 0

    def alone(self, now: float, amount: int, server_ms: int) -> None:
        """Go on with ``amount`` as the limit, when the pool cannot be asked."""
        if now >= self.ends:
            self.id, self.ends, self.used = server_ms, now + WINDOW_S, 0
        self.available, self.ahead, self.left, self.share = amount - self.used, None, 0, 0

    @property
    def low(self) -> bool:
        return self.available * 2 < self.share and self.left > 0


@dataclass(slots=True, frozen=True)
class WindowAnswer:
    """What the pool said: its window, what this worker got now and has in all, and what is left.

    ``same`` if what the worker held before counts in that window.
    """

    id: int
    granted: int
    mine: int
    left: int
    same: bool
    ahead: int | None = None


@dataclass(slots=True)
class Slots:
    """Requests at once: ``held`` of the pool, ``in_use`` of them."""

    limit: int
    held: int = 0
    in_use: int = 0
    left: int = 0
    share: int = 0

    @property
    def idle(self) -> int:
        return self.held - self.in_use

    def give_back(self) -> bool:
        kept, self.held = self.held, self.in_use
        self.share = 0
        return kept > self.in_use

    @property
    def low(self) -> bool:
        return (self.held - self.in_use) * 2 < self.share and self.left > 0


@dataclass(slots=True)
class Month:
    """Tokens per calendar month (UTC). ``spent`` is this worker's count of settled tokens since it began or
    since the month did; ``available + reserved`` is what it holds of the pool besides."""

    limit: int
    month: str
    spent: int = 0
    available: int = 0
    reserved: int = 0
    left: int = 0
    share: int = 0
    #: whether the pool knows what the month's earlier tokens were
    known: bool = False

    def take(self, amount: int) -> None:
        self.available -= amount
        self.reserved += amount

    def settle(self, reserved: int, spent: int) -> None:
        self.reserved -= reserved
        self.available += reserved - spent
        self.spent += spent

    @property
    def held(self) -> int:
        return self.available + self.reserved

    def give_back(self) -> bool:
        kept, self.available = self.available, min(0, self.available)
        self.share = 0
        return kept > 0

    @property
    def low(self) -> bool:
        return self.available * 2 < self.share and self.left > 0

    def turn(self, month: str) -> None:
        """Begin another month; what is in flight stays reserved and counts in the new one."""
        self.month, self.spent, self.available, self.left, self.share = month, 0, 0, self.limit, 0
        self.known = False


@dataclass(slots=True)
class Lease:
    """What to say and ask about one key; a limit that the key has not is -1.

    Windows: limit, id, leased, need, want, held of the next one, want of the next one. Slots: limit, held,
    need, want. Month: limit, spent, held, need, want, the database's sum (-1 for nothing to tell).
    """

    key_id: int
    month: str
    requests: tuple[int, int, int, int, int, int, int]
    tokens: tuple[int, int, int, int, int, int, int]
    slots: tuple[int, int, int, int]
    monthly: tuple[int, int, int, int, int, int]


@dataclass(slots=True)
class Leased:
    """The answer. ``known`` is False when Valkey had not heard of this lessee lately, or lost everything."""

    known: bool
    lessees: int
    server_ms: int
    requests: WindowAnswer | None
    tokens: WindowAnswer | None
    #: got, left
    slots: tuple[int, int] | None
    #: got, left
    monthly: tuple[int, int] | None
    #: the month's earlier tokens have to be told first
    month_unknown: bool = False
    #: what this lessee said it spent is counted already: it counts from 0 again
    month_anew: bool = False
