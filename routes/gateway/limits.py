"""A key's limits, kept together by every worker of every gateway.

``take`` decides by the shares this worker holds and answers at once. Only where they do not suffice it
gives something to wait for: the first request of a key after a pause, the last ones of a limit, and requests
under a limit below 50 that several workers share. While Valkey does not answer, every worker goes on with its
part of each limit, so that a gateway as a whole keeps to it, and ``shared`` is False.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import structlog

from routes.gateway.accounts import Account, Lack
from routes.gateway.leases import Leases
from routes.gateway.records import KeyRecord
from routes.gateway.shares import IDLE_S, WINDOW_S, Window
from routes.gateway.valkeypipe import ValkeyLost

TICK_S = 0.5
AGAIN_S = 1.0
#: how long an account that nobody uses is remembered
FORGET_S = 180.0
#: how often the pool of a month in use is compared with the database
RECOUNT_S = 600.0
#: how long the database may take to count a month
RECOUNT_TIMEOUT_S = 3.0
#: Valkey forgets slots after an hour without a word
RENEW_S = 1200.0
#: accounts that are seen to at a time
TEND = 2000

logger = structlog.get_logger("routes.gateway")

#: (key id, first moment of the month in Unix seconds) -> tokens spent since; may raise OSError
MonthlyUsed = Callable[[int, float], Awaitable[int]]


class Grant:
    """A request may go on. ``release`` once it has ended, whatever became of it; ``settle`` before, with the
    tokens it consumed in truth (0 if it did not get that far, which is also what release assumes)."""

    __slots__ = ("_account", "_limits", "_open", "_settled", "_tokens", "_window")
    granted = True

    def __init__(self, limits: Limits, account: Account, tokens: int):
        self._limits, self._account, self._tokens = limits, account, tokens
        self._window = account.tokens.id if account.tokens is not None else 0
        self._settled, self._open = False, True

    def lines(self) -> bytes:
        """x-ratelimit-*, as they go over the wire: limits, what is left as far as this worker knows, and when
        the minute is over."""
        account, now = self._account, self._limits.clock()
        requests, tokens = account.requests, account.tokens
        lines = b""
        if requests is not None:
            lines = _REQUEST_LINES % _left(requests, now)
        if tokens is not None:
            lines += _TOKEN_LINES % _left(tokens, now)
        return lines

    def settle(self, tokens: int) -> None:
        if not self._settled:
            self._settled = True
            self._account.settle(self._tokens, tokens, self._window)

    def release(self) -> None:
        if self._open:
            self._open = False
            self.settle(0)
            self._limits.released(self._account)

    def end(self, tokens: int) -> None:
        """Settle and release."""
        self.settle(tokens)
        self.release()


class FreeGrant:
    """For a key without limits."""

    granted = True

    def lines(self) -> bytes:
        return b""

    def settle(self, tokens: int) -> None:
        pass

    def release(self) -> None:
        pass

    def end(self, tokens: int) -> None:
        pass


@dataclass(slots=True, frozen=True)
class Refusal:
    """A request may not go on: 429 with ``retry_after_s``."""

    granted: ClassVar[bool] = False
    code: str
    message: str
    retry_after_s: float
    #: requests, tokens, concurrent or monthly
    limit: str = ""
    headers: dict[str, str] = field(default_factory=dict)


FREE = FreeGrant()


_REQUEST_LINES, _TOKEN_LINES = (
    b"x-ratelimit-limit-%b: %%d\r\nx-ratelimit-remaining-%b: %%d\r\nx-ratelimit-reset-%b: %%dms\r\n"
    % (name, name, name)
    for name in (b"requests", b"tokens")
)


def _left(window: Window, now: float) -> tuple[int, int, float]:
    """(limit, left, milliseconds until it begins anew)."""
    left = window.left if window.available < 0 else window.left + window.available
    wait = window.ends - now
    return window.limit, left if left > 0 else 0, wait * 1000 if wait > 0 else 0


def headers_of(account: Account, now: float) -> dict[str, str]:
    """What ``Grant.lines`` says, for an answer that refuses."""
    found: dict[str, str] = {}
    for name, window in (("requests", account.requests), ("tokens", account.tokens)):
        if window is not None:
            limit, left, wait = _left(window, now)
            found[f"x-ratelimit-limit-{name}"] = str(limit)
            found[f"x-ratelimit-remaining-{name}"] = str(left)
            found[f"x-ratelimit-reset-{name}"] = f"{int(wait)}ms"
    return found


def refusal(account: Account, lack: Lack, tokens: int, now: float) -> Refusal:
    """What the caller is told."""
    headers = headers_of(account, now)
    if lack == "requests" and account.requests is not None:
        wait = max(0.1, account.requests.ends - now)
        message = (
            f"This key may send {account.requests.limit} requests per minute and has. "
            f"Try again in {wait:.0f} seconds."
        )
    elif lack == "tokens" and account.tokens is not None:
        limit = account.tokens.limit
        wait = max(0.1, account.tokens.ends - now)
        if tokens > limit:
            message = (
                f"This request may consume {tokens} tokens and the key is limited to {limit} per minute: "
                "it can never pass. Send a shorter prompt or a smaller max_tokens."
            )
        else:
            message = (
                f"This key may consume {limit} tokens per minute; this request may need {tokens} and they "
                f"are not left. Try again in {wait:.0f} seconds."
            )
    elif lack == "monthly" and account.month is not None:
        wait = _month_after(now) - now
        message = (
            f"This key may consume {account.month.limit} tokens per calendar month (UTC); this request may "
            f"need {tokens} and they are not left. The count begins anew on the first; the key's owner can "
            "raise it."
        )
    else:
        wait = 1.0
        limit = account.slots.limit if account.slots is not None else 0
        message = (
            f"This key may have {limit} requests in progress at once and has. Try again when one has ended."
        )
    return Refusal("rate_limit_exceeded", message, wait, lack, headers)


def month_of(now: float) -> str:
    return time.strftime("%Y%m", time.gmtime(now))


def month_began(now: float) -> float:
    moment = time.gmtime(now)
    return (
        now
        - ((moment.tm_mday - 1) * 86400 + moment.tm_hour * 3600 + moment.tm_min * 60 + moment.tm_sec)
        - now % 1
    )


def _month_after(now: float) -> float:
    return month_began(month_began(now) + 32 * 86400)


class Limits:
    """One for each worker. ``run`` has to run for anything that shares do not suffice for.

    ``workers`` and ``number`` (from 0) say which part of each limit is this worker's without Valkey.
    ``monthly_used`` counts a key's tokens of the month in PostgreSQL.
    """

    def __init__(
        self,
        valkey_url: str,
        *,
        workers: int = 1,
        number: int = 0,
        monthly_used: MonthlyUsed | None = None,
        lessee: str = "",
        clock: Callable[[], float] = time.time,
    ):
        self.clock = clock
        #: False while Valkey does not answer. Until it was asked for the first time requests wait for that
        self.shared = True
        self.lessees = 1
        #: questions Valkey was asked, refusals by limit, requests that had to wait: for metrics
        self.asked = self.waited = 0
        self.refused = {"requests": 0, "tokens": 0, "concurrent": 0, "monthly": 0}
        self._leases = Leases(valkey_url, lessee or uuid.uuid4().hex)
        self._workers, self._number = workers, number
        self._monthly_used = monthly_used
        self._accounts: dict[int, Account] = {}
        self._dirty: set[Account] = set()
        self._waiters: dict[Account, list[tuple[asyncio.Future[Grant | Refusal], int]]] = {}
        self._wake = asyncio.Event()
        self._counting: set[asyncio.Task[None]] = set()
        self._counted: dict[int, float] = {}
        self._offset_ms = 0
        self._month = month_of(clock())
        self._beat_at = 0.0
        #: accounts that this round has still to see to
        self._round: list[Account] = []

    # -- the path of a request --------------------------------------------------------------------------

    def take(
        self, key: KeyRecord, tokens: int, now: float | None = None
    ) -> Grant | FreeGrant | Refusal | Awaitable[Grant | Refusal]:
        """Take one request that may consume ``tokens`` out of all limits of the key, or out of none."""
        if now is None:
            now = self.clock()
        account = self._accounts.get(key.id)
        if account is None or account.key is not key:
            account = self._account(key, now)
        if account.free:
            return FREE
        account.used_at = now
        if not self.shared and account.ended(now):
            account.alone(now, int(now * 1000) + self._offset_ms, self._workers, self._number)
        lack = account.take(tokens, now)
        if not lack:
            if self.shared and account.low and not account.asking:
                self._ask(account)
            return Grant(self, account, tokens)
        if not self.shared or self._too_large(account, tokens, lack) or account.hopeless(tokens, now, lack):
            self.refused[lack] += 1
            return refusal(account, lack, tokens, now)
        return self._wait(account, tokens)

    @staticmethod
    def _too_large(account: Account, tokens: int, lack: Lack) -> bool:
        return lack == "tokens" and account.tokens is not None and tokens > account.tokens.limit

    def _account(self, key: KeyRecord, now: float) -> Account:
        account = self._accounts.get(key.id)
        if account is None:
            account = self._accounts[key.id] = Account(key)
        account.change(key, self._month)
        if not account.free:
            if not self.shared:
                account.alone(now, int(now * 1000) + self._offset_ms, self._workers, self._number)
            self._ask(account)
        return account

    def _wait(self, account: Account, tokens: int) -> Awaitable[Grant | Refusal]:
        future: asyncio.Future[Grant | Refusal] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(account, []).append((future, tokens))
        self.waited += 1
        self._ask(account)
        return self._waited(future)

    @staticmethod
    async def _waited(future: asyncio.Future[Grant | Refusal]) -> Grant | Refusal:
        try:
            return await future
        except asyncio.CancelledError:
            # the caller went just when the answer came
            if future.done() and not future.cancelled():
                found = future.result()
                if isinstance(found, Grant):
                    found.release()
            raise

    def released(self, account: Account) -> None:
        """A request of the account has ended (Grant.release)."""
        if account.slots is None:
            return
        account.slots.in_use = max(0, account.slots.in_use - 1)
        if account in self._waiters:
            self._serve(account, self.clock())
        if self.shared and account.excess(self.lessees):
            self._ask(account)

    # -- asking Valkey ----------------------------------------------------------------------------------

    def _ask(self, account: Account) -> None:
        self._dirty.add(account)
        self._wake.set()

    async def run(self) -> None:
        """Keep shares leased until cancelled; what is held then goes back."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._wake.wait()
                self._wake.clear()
                try:
                    await self._turn(self.clock())
                except ValkeyLost as error:
                    self._lost(str(error))
                    await asyncio.sleep(AGAIN_S)
        finally:
            await asyncio.shield(self._leave())

    async def _turn(self, now: float) -> None:
        if not self.shared or now - self._beat_at >= TICK_S:
            await self._beat(now)
        while self._dirty:
            accounts = [account for account in self._dirty if not account.free]
            self._dirty.clear()
            for start in range(0, len(accounts), 100):
                await self._lease(accounts[start : start + 100])

    async def _beat(self, now: float) -> None:
        """Say that this worker lives, and see to what is due."""
        known, self.lessees, server_ms, hungry = await self._leases.beat()
        self._beat_at = now
        self._offset_ms = server_ms - int(self.clock() * 1000)
        if not self.shared:
            logger.info("limits are shared through Valkey")
            self.shared = True
            for account in self._accounts.values():
                account.give_back()
                account.answered_at = 0.0
                self._dirty.add(account)
        self._tend(now, hungry, forgotten=not known)

    def _tend(self, now: float, hungry: set[int], *, forgotten: bool) -> None:
        """See to some accounts each time, so that many keep no request waiting, and at once to the hungry."""
        if forgotten:
            self._dirty.update(account for account in self._accounts.values() if not account.free)
        self._month = month_of(now)
        if not self._round:
            self._round = list(self._accounts.values())
        some, self._round = self._round[-TEND:], self._round[:-TEND]
        for account in some:
            if self._accounts.get(account.key.id) is not account:
                continue
            old = account.empty and now - account.used_at > FORGET_S and account not in self._waiters
            if account.free or old:
                del self._accounts[account.key.id]
                self._counted.pop(account.key.id, None)
                self._dirty.discard(account)
            else:
                self._tend_one(account, now)
        for key_id in hungry:
            account = self._accounts.get(key_id)
            if account is not None and account.give_back():
                self._dirty.add(account)

    def _tend_one(self, account: Account, now: float) -> None:
        if account.month is not None:
            if account.month.month != self._month:
                account.month.turn(self._month)
                account.base = -1
                self._dirty.add(account)
            elif now - account.used_at < RECOUNT_S < now - self._counted.get(account.key.id, 0):
                self._count(account, now)
        idle = self.lessees > 1 and now - account.used_at > IDLE_S
        gave = (idle or account.excess(self.lessees)) and account.give_back(small_only=not idle)
        if gave or account.ahead_due(now, self.lessees) or now - account.answered_at > RENEW_S:
            self._dirty.add(account)

    async def _lease(self, accounts: list[Account]) -> None:
        now = self.clock()
        questions = []
        for account in accounts:
            waiters = [one for one in self._waiters.get(account, ()) if not one[0].done()]
            if waiters:
                self._waiters[account] = waiters
            else:
                self._waiters.pop(account, None)
            account.waiting = [tokens for _future, tokens in waiters]
            if not waiters and account.excess(self.lessees):
                account.give_back(small_only=True)
            account.asking = True
            questions.append(account.question(now, self.lessees))
        try:
            answers = await self._leases.lease(questions)
        except ValkeyLost:
            # it is not known whether the questions were heard; the next ones say everything again
            self._dirty.update(accounts)
            raise
        finally:
            for account in accounts:
                account.asking = False
        self.asked += len(questions)
        now = self.clock()
        for account, question, answer in zip(accounts, questions, answers, strict=True):
            self.lessees = answer.lessees
            account.answer(question, answer, now)
            if answer.month_unknown:
                self._count(account, now)
            refused = self._serve(account, now)
            if account in self._waiters or self.lessees < 2:
                continue
            # what was leased for the refused ones, of limits that would have let them pass, is others'
            if (refused and account.give_back()) or account.excess(self.lessees):
                self._ask(account)

    def _serve(self, account: Account, now: float) -> int:
        """Answer those who wait, in their order, as far as what is held and what the pool said suffice;
        returns how many were refused."""
        refused = 0
        waiters = self._waiters.pop(account, [])
        rest = []
        for future, tokens in waiters:
            if future.done():
                continue
            lack = account.take(tokens, now)
            if not lack:
                future.set_result(Grant(self, account, tokens))
            elif not self.shared or account.exhausted(tokens, lack):
                refused += 1
                self.refused[lack] += 1
                future.set_result(refusal(account, lack, tokens, now))
            else:
                rest.append((future, tokens))
        if rest:
            self._waiters[account] = rest
            if account.month is None or account.month.known:
                self._ask(account)
        return refused

    # -- the month's tokens -----------------------------------------------------------------------------

    def _count(self, account: Account, now: float) -> None:
        """Have the database count the month, and tell the pool."""
        self._counted[account.key.id] = now
        task = asyncio.get_running_loop().create_task(self._recount(account, now))
        self._counting.add(task)
        task.add_done_callback(self._counting.discard)

    async def _recount(self, account: Account, now: float) -> None:
        used = 0
        if self._monthly_used is not None:
            try:
                async with asyncio.timeout(RECOUNT_TIMEOUT_S):
                    used = await self._monthly_used(account.key.id, month_began(now))
            except (OSError, TimeoutError) as error:
                logger.warning("a month's tokens could not be counted", error=type(error).__name__)
                # asked again with the next beat; those who wait are not refused for what is not known
                self._counted.pop(account.key.id, None)
                if account.month is None or account.month.known:
                    return
        account.base = used
        self._ask(account)

    # -- without Valkey ---------------------------------------------------------------------------------

    def _lost(self, error: str) -> None:
        """Go on alone; called again with every try that fails."""
        now, month = self.clock(), month_of(self.clock())
        if self.shared:
            logger.warning("Valkey does not answer: limits hold for each gateway on its own", error=error)
        if self.shared or month != self._month:
            for account in self._accounts.values():
                if account.month is not None and account.month.month != month:
                    account.month.turn(month)
                account.alone(now, int(now * 1000) + self._offset_ms, self._workers, self._number)
        self.shared, self._month = False, month
        for account in list(self._waiters):
            self._serve(account, now)

    async def _leave(self) -> None:
        for task in self._counting:
            task.cancel()
        for account in list(self._waiters):
            for future, _tokens in self._waiters.pop(account):
                future.cancel()
        with suppress(ValkeyLost):
            if self.shared:
                for account in self._accounts.values():
                    account.give_back()
                    account.waiting = []
                accounts = [account for account in self._accounts.values() if not account.free]
                now = self.clock() + IDLE_S + WINDOW_S
                for start in range(0, len(accounts), 100):
                    await self._leases.lease(
                        [one.question(now, self.lessees) for one in accounts[start : start + 100]]
                    )
                await self._leases.leave()
        await self._leases.close()
