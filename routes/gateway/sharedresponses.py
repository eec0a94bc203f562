"""Who made which response, known to every worker of every gateway on one Valkey.

What a worker learns it remembers at once and tells Valkey behind the answer, many at a time. Valkey is asked
only for an id that is not known here, so no other request waits for it. A key there is a hash of the
response's id, its value the ids of business and target, for a day.

``began`` says since when the same Valkey remembers. When it changed, something may be lost, and every worker
tells again what it knows; until they had the time to, an id that is missing is not said to be unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b

import structlog

from routes.gateway.faults import Fault
from routes.gateway.responses import LIMIT, Made, Responses
from routes.gateway.valkeypipe import ValkeyLost, ValkeyPipe

PREFIX = "kvadmin:responses:"
BEGAN = f"{PREFIX}began"
TTL_S = 86_400
#: how long a request waits to hear who made a response
ASK_S = 1.0
#: what was made in this time is told together
GATHER_S = 0.02
#: what was made this moment elsewhere may be on its way
SOON_S = 0.1
BEAT_S = 1.0
AGAIN_S = 1.0
#: within this time of losing everything Valkey was told it again by every worker that lives
SETTLED_MS = 5_000
#: told, or asked, in one go
BATCH = 500
#: questions that may wait at once
MOST_QUESTIONS = 5_000

_BEAT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local began = redis.call('GET', KEYS[1])
if not began or string.match(began, '%w+$') ~= run then
    began = string.format('%.0f ', now) .. run
    redis.call('SET', KEYS[1], began)
end
return {began, now - tonumber(string.match(began, '^%d+'))}
"""

#: what another business made first stays its own: its value is the answer then
_TELL = """
local answer = {}
for i, key in ipairs(KEYS) do
    local value = ARGV[i + 1]
    local known = redis.call('GET', key)
    if known and string.match(known, '^%d+') ~= string.match(value, '^%d+') then
        answer[i] = known
    else
        redis.call('SET', key, value, 'EX', ARGV[1])
        answer[i] = ''
    end
end
return answer
"""

#: an id, and who waits to hear of it
Question = tuple[str, asyncio.Future[None]]

logger = structlog.get_logger("routes.gateway")


def key_of(response_id: str) -> str:
    return PREFIX + blake2b(response_id.encode(errors="replace"), digest_size=16).hexdigest()


def _made(value: bytes) -> Made:
    business_id, target_id = value.split()
    return Made(int(business_id), int(target_id))


def _fail(questions: Sequence[Question], reason: str) -> None:
    for _response_id, future in questions:
        if not future.done():
            future.set_exception(ValkeyLost(reason))


class SharedResponses(Responses):
    """``shared`` is False while Valkey does not answer."""

    def __init__(self, url: str, limit: int = LIMIT):
        super().__init__(limit)
        self.shared = False
        self._pipe = ValkeyPipe(url, {"beat": _BEAT, "tell": _TELL}, ASK_S)
        self._untold: dict[str, None] = {}
        self._questions: list[Question] = []
        self._wake = asyncio.Event()
        self._began = b""
        self._settled = False

    def remember(self, response_id: str, target_id: int, business_id: int) -> None:
        made = Made(business_id, target_id)
        # a stream's is heard at its beginning and at its end
        if self._made.get(response_id) != made and self.keep(response_id, made):
            self._untold[response_id] = None
            self._wake.set()

    def forget(self, response_id: str) -> None:
        super().forget(response_id)
        self._untold.pop(response_id, None)

    # -- asking -----------------------------------------------------------------------------------------

    async def ask_elsewhere(self, wanted: str, own: str = "") -> None:
        try:
            async with asyncio.timeout(ASK_S):
                await self._ask(wanted, own)
                if not self.knows(wanted):
                    await asyncio.sleep(SOON_S)
                    await self._ask(wanted)
            if self._settled or (self.knows(wanted) and self.knows(own)):
                return
        except (TimeoutError, ValkeyLost):
            pass
        raise Fault(
            503,
            "response_undecided",
            "It cannot be decided at the moment who made this response: it is not known here, and what the "
            "other gateways know is out of reach. Try again in a moment.",
            retry_after_s=2,
        )

    async def _ask(self, *response_ids: str) -> None:
        unknown = [response_id for response_id in response_ids if not self.knows(response_id)]
        if not unknown:
            return
        if not self.shared or len(self._questions) >= MOST_QUESTIONS:
            raise ValkeyLost
        loop = asyncio.get_running_loop()
        waiting = [(response_id, loop.create_future()) for response_id in unknown]
        self._questions += waiting
        self._wake.set()
        await asyncio.gather(*(future for _response_id, future in waiting))

    # -- with Valkey ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Tell and ask until cancelled."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_S):
                        await self._wake.wait()
                if self._untold and not self._questions:
                    await asyncio.sleep(GATHER_S)
                self._wake.clear()
                try:
                    await self._turn()
                except ValkeyLost as error:
                    self._lost(error)
                    await asyncio.sleep(AGAIN_S)
        finally:
            await asyncio.shield(self._leave())

    async def _leave(self) -> None:
        with suppress(ValkeyLost):
            while self.shared and self._untold:
                await self._turn()
        await self._pipe.close()

    async def _turn(self) -> None:
        asked, self._questions = self._questions[:BATCH], self._questions[BATCH:]
        asked = [one for one in asked if not one[1].done()]
        told = {response_id: self._made[response_id] for response_id in list(self._untold)[:BATCH]}
        commands: list[tuple[object, ...]] = [("beat", 1, BEGAN)]
        if told:
            values = [f"{made.business_id} {made.target_id}" for made in told.values()]
            commands.append(("tell", len(told), *map(key_of, told), TTL_S, *values))
        commands += [("GET", key_of(response_id)) for response_id, _future in asked]
        try:
            (began, age_ms), *answers = await self._pipe.ask(commands)
        except ValkeyLost as error:
            _fail(asked, str(error))
            raise
        if told:
            self._heard(told, answers.pop(0))
        for (response_id, future), value in zip(asked, answers, strict=True):
            if value is not None:
                self.keep(response_id, _made(value))
            if not future.done():
                future.set_result(None)
        self._settled = age_ms >= SETTLED_MS
        if not self.shared or began != self._began:
            self._found(began)
        if self._untold or self._questions:
            self._wake.set()

    def _heard(self, told: dict[str, Made], answers: Sequence[bytes]) -> None:
        for (response_id, made), other in zip(told.items(), answers, strict=True):
            if other:
                self.forget(response_id)
                self.keep(response_id, _made(other))
            elif self._made.get(response_id) == made:
                self._untold.pop(response_id, None)

    def _found(self, began: bytes) -> None:
        """Valkey is there, and may lack what it was told before."""
        if not self.shared:
            logger.info("responses by id are shared through Valkey")
        if self._began:
            self._untold = dict.fromkeys(self._made)
        self.shared, self._began = True, began

    def _lost(self, error: ValkeyLost) -> None:
        if self.shared:
            logger.warning(
                "Valkey does not answer: responses by id are found where they were made", error=str(error)
            )
        self.shared = False
        questions, self._questions = self._questions, []
        _fail(questions, str(error))
