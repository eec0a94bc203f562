"""The pools of the keys' limits in Valkey, and one worker's leases of them.

For a key: a hash for the window of requests and one of tokens (lessee -> what it leased in that window,
and ``s``, the millisecond the window began), one each for the window after, a hash of slots (lessee -> slots
held), and a hash for the month (``b``: tokens spent by lessees that are gone; ``p:`` lessee -> spent, ``o:``
lessee -> held besides). Every number is absolute, so a call may be lost or come twice. A lessee that has not
been heard of for LESSEE_TTL_MS is gone: its slots and its held tokens are free again. What it leased of a
window stays taken until the window ends, at most a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from routes.gateway.shares import SMALL, WINDOW_MS, Lease, Leased, WindowAnswer
from routes.gateway.valkeypipe import ValkeyPipe, text

PREFIX = "kvadmin:limits:"
LESSEES = f"{PREFIX}lessees"
HUNGRY = f"{PREFIX}hungry"
LESSEE_TTL_MS = 4_000
#: how long Valkey may be silent before the worker goes on alone; one that is gone is known at once. Not less:
#: on a busy machine an answer can be late, and going on alone lets more through
TIMEOUT_S = 2.0
_SLOTS_KEPT_MS = 3_600_000
_MONTH_KEPT_MS = 40 * 86_400_000

_COMMON = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local me, ttl = ARGV[1], tonumber(ARGV[2])
local alive, lessees, known = {}, 0, 0
local seen = redis.call('HGETALL', KEYS[1])
for i = 1, #seen, 2 do
    if now - tonumber(seen[i + 1]) < ttl then
        alive[seen[i]] = true
        lessees = lessees + 1
        if seen[i] == me then known = 1 end
    else
        redis.call('HDEL', KEYS[1], seen[i])
    end
end
if known == 0 then
    alive[me] = true
    lessees = lessees + 1
end
redis.call('HSET', KEYS[1], me, now)
"""

#: grant() is that of shares.py
GRANT = """
local function grant(limit, left, need, want, lessees)
    if left <= 0 then return 0 end
    local ahead = 0
    if limit >= SMALL or lessees == 1 then ahead = math.min(want, math.floor(left / (2 * lessees))) end
    return math.min(left, math.max(need, ahead))
end
""".replace("SMALL", str(SMALL))

_LEASE = (
    _COMMON
    + GRANT
    + """
local at = 3
local function take()
    at = at + 1
    return tonumber(ARGV[at])
end
local hungry = false
local function total(key, but)
    local sum, fields = 0, redis.call('HGETALL', key)
    for i = 1, #fields, 2 do
        if fields[i] ~= but then sum = sum + tonumber(fields[i + 1]) end
    end
    return sum
end
local function window(key, nextkey)
    local limit, id, leased, need, want, nextleased, nextwant =
        take(), take(), take(), take(), take(), take(), take()
    if limit < 0 then return {} end
    local s = tonumber(redis.call('HGET', key, 's') or '')
    -- a lessee rolls by its own clock, which may be ahead by a little
    if s and (now >= s + WINDOW or (id == s + WINDOW and now > s + WINDOW - 1000)) then
        if now < s + 2 * WINDOW and redis.call('EXISTS', nextkey) == 1 then
            redis.call('RENAME', nextkey, key)
            s = s + WINDOW
            redis.call('HSET', key, 's', s)
        else
            redis.call('DEL', key, nextkey)
            s = nil
        end
    end
    -- the window this lessee knows still runs, and is not ours: Valkey lost it, or was away
    local lost = id ~= s and id > 0 and id <= now + 2000 and now < id + WINDOW
    if not s then
        s = lost and math.min(id, now) or now
        redis.call('DEL', nextkey)
        redis.call('HSET', key, 's', s)
    end
    local mine = tonumber(redis.call('HGET', key, me) or '0')
    local same = (id == s or lost) and 1 or 0
    if same == 1 then
        mine = leased
        redis.call('HSET', key, me, mine)
    end
    local left = limit - total(key, 's')
    local got = grant(limit, left, need, want, lessees)
    if got > 0 then
        mine = mine + got
        redis.call('HSET', key, me, mine)
    end
    if got < need then hungry = true end
    redis.call('PEXPIREAT', key, s + 2 * WINDOW)
    local ahead = -1
    if nextwant > 0 and id == s then
        redis.call('HSET', nextkey, me, nextleased)
        ahead = nextleased + grant(limit, limit - total(nextkey, ''), 0, nextwant, lessees)
        redis.call('HSET', nextkey, me, ahead)
        redis.call('PEXPIREAT', nextkey, s + 2 * WINDOW)
    end
    return {s, got, mine, left - got, same, ahead}
end
local function slots(key)
    local limit, held, need, want = take(), take(), take(), take()
    if limit < 0 then return {} end
    local used, fields = 0, redis.call('HGETALL', key)
    for i = 1, #fields, 2 do
        if not alive[fields[i]] then
            redis.call('HDEL', key, fields[i])
        elseif fields[i] ~= me then
            used = used + tonumber(fields[i + 1])
        end
    end
    local left = limit - used - held
    local got = grant(limit, left, need, want, lessees)
    if got < need then hungry = true end
    if held + got > 0 then
        redis.call('HSET', key, me, held + got)
        redis.call('PEXPIRE', key, SLOTS_KEPT)
    else
        redis.call('HDEL', key, me)
    end
    return {got, left - got}
end
local function month(key)
    local limit, spent, held, need, want, base = take(), take(), take(), take(), take(), take()
    if limit < 0 then return {} end
    local had = tonumber(redis.call('HGET', key, 'b') or '')
    if not had and base < 0 then return {0, 0, 0} end
    -- what it spent was counted already: as a lessee that was gone, or in the sum that the pool was made of
    local status = 1
    if had and spent > 0 and redis.call('HEXISTS', key, 'p:' .. me) == 0 then
        spent, status = 0, 2
    end
    redis.call('HSET', key, 'p:' .. me, spent, 'o:' .. me, held)
    local used, spents, gone, fields = 0, 0, 0, redis.call('HGETALL', key)
    for i = 1, #fields, 2 do
        local kind, who = string.sub(fields[i], 1, 2), string.sub(fields[i], 3)
        local value = tonumber(fields[i + 1])
        if kind == 'p:' then
            if alive[who] then
                spents = spents + value
            else
                gone = gone + value
                redis.call('HDEL', key, fields[i])
            end
        elseif kind == 'o:' then
            if alive[who] then used = used + value else redis.call('HDEL', key, fields[i]) end
        end
    end
    local b = had and had + gone or 0
    -- the database's sum can lack what is still on its way there, and never has too much
    if base > b + spents then b = base - spents end
    redis.call('HSET', key, 'b', b)
    redis.call('PEXPIRE', key, MONTH_KEPT)
    local left = limit - b - spents - used
    local got = grant(limit, left, need, want, lessees)
    if got > 0 then redis.call('HSET', key, 'o:' .. me, held + got) end
    if got < need then hungry = true end
    return {status, got, left - got}
end
local answer = {
    known, lessees, now, window(KEYS[2], KEYS[3]), window(KEYS[4], KEYS[5]), slots(KEYS[6]), month(KEYS[7])
}
if hungry and lessees > 1 then redis.call('ZADD', KEYS[8], now, ARGV[3]) end
return answer
""".replace("WINDOW", str(WINDOW_MS))
    .replace("SLOTS_KEPT", str(_SLOTS_KEPT_MS))
    .replace("MONTH_KEPT", str(_MONTH_KEPT_MS))
)

_BEAT = (
    _COMMON
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - 2000)
return {known, lessees, now, redis.call('ZRANGEBYSCORE', KEYS[2], now - 2000, '+inf')}
"""
)


def _window(found: Sequence[int]) -> WindowAnswer | None:
    if not found:
        return None
    id, granted, mine, left, same, ahead = found
    return WindowAnswer(id, granted, mine, left, bool(same), ahead if ahead >= 0 else None)


class Leases:
    """One lessee's connection to the pools. One caller at a time."""

    def __init__(self, url: str, lessee: str):
        self.lessee = lessee
        self._pipe = ValkeyPipe(url, {"lease": _LEASE, "beat": _BEAT}, TIMEOUT_S)

    async def beat(self) -> tuple[bool, int, int, set[int]]:
        """Say that this lessee lives: (known, lessees, Valkey's ms, keys that somebody has too little of)."""
        (answer,) = await self._pipe.ask([("beat", 2, LESSEES, HUNGRY, self.lessee, LESSEE_TTL_MS)])
        known, lessees, now, hungry = answer
        return bool(known), lessees, now, {int(key) for key in hungry}

    async def lease(self, wanted: Sequence[Lease]) -> list[Leased]:
        commands = []
        for one in wanted:
            key = f"{PREFIX}{one.key_id}"
            keys = (
                LESSEES,
                f"{key}:r",
                f"{key}:r:next",
                f"{key}:t",
                f"{key}:t:next",
                f"{key}:c",
                f"{key}:m:{one.month}",
                HUNGRY,
            )
            numbers = (*one.requests, *one.tokens, *one.slots, *one.monthly)
            commands.append(("lease", len(keys), *keys, self.lessee, LESSEE_TTL_MS, one.key_id, *numbers))
        return [self._leased(answer) for answer in await self._pipe.ask(commands)]

    @staticmethod
    def _leased(answer: list[Any]) -> Leased:
        known, lessees, now, requests, tokens, slots, month = answer
        return Leased(
            bool(known),
            lessees,
            now,
            _window(requests),
            _window(tokens),
            (slots[0], slots[1]) if slots else None,
            (month[1], month[2]) if month and month[0] else None,
            month_unknown=bool(month) and month[0] == 0,
            month_anew=bool(month) and month[0] == 2,
        )

    async def leave(self) -> None:
        """No longer a lessee: whatever is still held of slots and months is free at once."""
        await self._pipe.ask([("HDEL", LESSEES, self.lessee)])

    async def close(self) -> None:
        await self._pipe.close()


def outstanding(client: redis.Redis) -> dict[str, int]:
    """What lessees that still live hold of slots: {"key id/lessee": slots}. For checks that nothing leaks."""
    seconds, micros = client.time()
    now = seconds * 1000 + micros // 1000
    alive = {text(name) for name, seen in client.hgetall(LESSEES).items() if now - int(seen) < LESSEE_TTL_MS}
    found = {}
    for key in client.scan_iter(match=f"{PREFIX}*:c"):
        for lessee, held in client.hgetall(key).items():
            if text(lessee) in alive and int(held):
                found[f"{text(key).removeprefix(PREFIX).removesuffix(':c')}/{text(lessee)}"] = int(held)
    return found
