"""One key's limits as one worker holds them: what a request takes, settles and gives back. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from routes.gateway.records import KeyRecord
from routes.gateway.shares import (
    AHEAD_S,
    BELIEVE_S,
    IDLE_S,
    LATELY_S,
    SMALL,
    Lease,
    Leased,
    Month,
    Slots,
    Window,
    part,
)

Lack = Literal["", "requests", "tokens", "concurrent", "monthly"]

_NONE_WINDOW = (-1, 0, 0, 0, 0, 0, 0)
_NONE_SLOTS = (-1, 0, 0, 0)
_NONE_MONTH = (-1, 0, 0, 0, 0, -1)


@dataclass(slots=True, eq=False)
class Account:
    """The limits of one key in one worker. A limit the key has not is None."""

    key: KeyRecord
    requests: Window | None = None
    tokens: Window | None = None
    slots: Slots | None = None
    month: Month | None = None
    used_at: float = 0.0
    answered_at: float = 0.0
    #: the sum of the month in the database, to be told to the pool; -1 when there is nothing to tell
    base: int = -1
    #: this account is in the question that Valkey has not answered yet
    asking: bool = False
    #: requests that wait for an answer: what each needs of tokens
    waiting: list[int] = field(default_factory=list)

    def change(self, key: KeyRecord, month: str) -> None:
        """Follow the key's limits. What is held of a limit that changed goes back with the next question."""
        self.key = key
        self.requests = _window(self.requests, key.requests_per_minute)
        self.tokens = _window(self.tokens, key.tokens_per_minute)
        if key.concurrent is None:
            self.slots = None
        elif self.slots is None:
            self.slots = Slots(key.concurrent, left=key.concurrent)
        else:
            self.slots.limit = key.concurrent
            self.slots.held = self.slots.left = self.slots.in_use
        if key.monthly_tokens is None:
            self.month = None
        elif self.month is None:
            self.month = Month(key.monthly_tokens, month, left=key.monthly_tokens)
        else:
            self.month.left += key.monthly_tokens - self.month.limit + max(0, self.month.available)
            self.month.limit = key.monthly_tokens
            self.month.give_back()
        self.answered_at = 0.0

    @property
    def free(self) -> bool:
        """The key has no limit at all."""
        return self.requests is None and self.tokens is None and self.slots is None and self.month is None

    def lacks(self, tokens: int, now: float) -> Lack:
        """The first limit of which the shares held here do not suffice; "" when all do."""
        requests, rate, slots, month = self.requests, self.tokens, self.slots, self.month
        if slots is not None and slots.held <= slots.in_use:
            return "concurrent"
        if requests is not None:
            if now >= requests.ends:
                requests.roll(now)
            if requests.available < 1:
                return "requests"
        if rate is not None:
            if now >= rate.ends:
                rate.roll(now)
            if rate.available < tokens or rate.available <= 0:
                return "tokens"
        if month is not None and (month.available < tokens or month.available <= 0):
            return "monthly"
        return ""

    def take(self, tokens: int, now: float) -> Lack:
        """Take one request with a reservation of ``tokens`` out of every limit, "" then; or out of none, and
        the first that does not suffice."""
        lack = self.lacks(tokens, now)
        if lack:
            return lack
        requests, rate, slots, month = self.requests, self.tokens, self.slots, self.month
        if requests is not None:
            requests.take(1)
        if rate is not None:
            rate.take(tokens)
        if slots is not None:
            slots.in_use += 1
        if month is not None:
            month.take(tokens)
        return ""

    def hopeless(self, tokens: int, now: float, lack: Lack) -> bool:
        """Whether a question just answered says that the pool has not enough either."""
        if now - self.answered_at > BELIEVE_S:
            return False
        return self.exhausted(tokens, lack)

    def exhausted(self, tokens: int, lack: Lack) -> bool:
        """Whether what is held and what the pool had left at the last answer are too little together."""
        if lack == "requests" and self.requests is not None:
            return self.requests.available + self.requests.left < 1
        if lack == "tokens" and self.tokens is not None:
            return self.tokens.available + self.tokens.left < max(1, tokens)
        if lack == "concurrent" and self.slots is not None:
            return self.slots.idle + self.slots.left < 1
        if lack == "monthly" and self.month is not None:
            return self.month.known and self.month.available + self.month.left < max(1, tokens)
        return False

    @property
    def low(self) -> bool:
        """Whether to ask for more ahead of need."""
        return (
            (self.requests is not None and self.requests.low)
            or (self.tokens is not None and self.tokens.low)
            or (self.slots is not None and self.slots.low)
            or (self.month is not None and self.month.low)
        )

    def question(self, now: float, lessees: int) -> Lease:
        """What to ask for now: the need of those who wait, and shares ahead if the key is in use."""
        waiting, tokens = len(self.waiting), sum(self.waiting)
        lately = now - self.used_at < IDLE_S or waiting > 0
        slots = _NONE_SLOTS
        if self.slots is not None:
            need = max(0, waiting - self.slots.idle)
            slots = (self.slots.limit, self.slots.held, need, self.slots.limit // 4 if lately else 0)
        monthly = _NONE_MONTH
        if self.month is not None:
            month = self.month
            need = max(0, tokens - month.available) if waiting else 0
            want = max(need, month.limit // 100) if lately else 0
            monthly = (month.limit, month.spent, month.held, max(need, min(1, waiting)), want, self.base)
        return Lease(
            self.key.id,
            self.month.month if self.month is not None else "",
            _ask_window(self.requests, waiting, waiting, now, lately, lessees),
            _ask_window(self.tokens, tokens, waiting, now, lately, lessees),
            slots,
            monthly,
        )

    def answer(self, asked: Lease, said: Leased, now: float) -> None:
        """Take in what the pools gave."""
        self.answered_at = now
        for window, answer in ((self.requests, said.requests), (self.tokens, said.tokens)):
            if window is not None and answer is not None:
                keep = window.limit >= SMALL or said.lessees == 1
                window.leased_more(answer, now, said.server_ms, keep=keep)
        if self.slots is not None and said.slots is not None:
            self.slots.held += said.slots[0]
            self.slots.left = said.slots[1]
            self.slots.share = self.slots.idle if self.slots.limit >= SMALL or said.lessees == 1 else 0
        month = self.month
        if month is None or month.month != asked.month:
            return
        if said.month_unknown:
            # the sum of the database, which is asked now, has it
            month.known, month.spent = False, month.spent - asked.monthly[1]
            month.share = 0
        elif said.monthly is not None:
            if said.month_anew:
                month.spent -= asked.monthly[1]
            month.known = True
            month.available += said.monthly[0]
            month.left = said.monthly[1]
            month.share = month.available
            if self.base == asked.monthly[5]:
                self.base = -1

    def excess(self, lessees: int) -> bool:
        """Whether something small is held that another lessee may need at once."""
        if lessees < 2:
            return False
        if self.slots is not None and self.slots.limit < SMALL and self.slots.idle > 0:
            return True
        return any(
            window is not None and window.limit < SMALL and window.available > 0
            for window in (self.requests, self.tokens)
        )

    def give_back(self, *, small_only: bool = False) -> bool:
        """Let go of what is not in use; True if there was any. The next question tells the pools."""
        gave = False
        for window in (self.requests, self.tokens):
            if window is not None and (window.limit < SMALL or not small_only):
                gave |= window.give_back()
        if self.slots is not None and (self.slots.limit < SMALL or not small_only):
            gave |= self.slots.give_back()
        if self.month is not None and not small_only:
            gave |= self.month.give_back()
        return gave

    def alone(self, now: float, server_ms: int, workers: int, number: int) -> None:
        """Go on with this worker's part of each limit, because the pools cannot be asked."""
        for window in (self.requests, self.tokens):
            if window is not None:
                window.alone(now, part(window.limit, workers, number), server_ms)
        if self.slots is not None:
            self.slots.held = max(self.slots.in_use, part(self.slots.limit, workers, number))
            self.slots.left = self.slots.share = 0
        if self.month is not None:
            # what the pool had left when it was last asked, or all of it if it never was
            if self.month.left > 0:
                self.month.available += part(self.month.left, workers, number)
            self.month.left = self.month.share = 0

    def ended(self, now: float) -> bool:
        """Whether a window has run out."""
        return (self.requests is not None and now >= self.requests.ends) or (
            self.tokens is not None and now >= self.tokens.ends
        )

    def settle(self, reserved: int, spent: int, window: int) -> None:
        """``reserved`` tokens, taken in the tokens' window of that id, were ``spent`` in truth."""
        if self.tokens is not None:
            self.tokens.settle(reserved, spent, window)
        if self.month is not None:
            self.month.settle(reserved, spent)

    def ahead_due(self, now: float, lessees: int) -> bool:
        """Whether to lease of the next window now."""
        if now - self.used_at > LATELY_S:
            return False
        return any(_ahead(window, now, lessees) for window in (self.requests, self.tokens))

    @property
    def empty(self) -> bool:
        """Nothing is in flight and nothing held that a question would have to tell."""
        return (
            not self.waiting
            and not self.asking
            and (self.slots is None or self.slots.held == 0)
            and (self.month is None or self.month.reserved == 0)
        )


def _window(old: Window | None, limit: int | None) -> Window | None:
    if limit is None:
        return None
    if old is None:
        return Window(limit, left=limit)
    old.limit = limit
    old.give_back()
    old.left, old.ahead = limit, None
    return old


def _ahead(window: Window | None, now: float, lessees: int) -> bool:
    return (
        window is not None
        and window.ahead is None
        and window.id > 0
        and 0 < window.ends - now < AHEAD_S
        and (window.limit >= SMALL or lessees == 1)
    )


def _ask_window(
    window: Window | None, amount: int, waiting: int, now: float, lately: bool, lessees: int
) -> tuple[int, int, int, int, int, int, int]:
    if window is None:
        return _NONE_WINDOW
    leased = window.tell()
    need = max(min(1, waiting), amount - window.available) if waiting else 0
    if waiting and window.available >= max(1, amount):
        need = 0
    want = max(need, window.limit // 4) if lately else 0
    ahead = window.limit // 4 if _ahead(window, now, lessees) else 0
    return (window.limit, window.id, leased, need, want, 0, ahead)
