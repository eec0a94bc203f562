"""Who made a response that can be asked for by its id: which target, for which business. Pure.

The first maker of an id stays its maker: vLLM lets a caller choose the id of its answer, and with another's
id it would otherwise come to read or to go on from what is not its own.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import NamedTuple

from routes.gateway.asked import Asked
from routes.gateway.faults import Fault

LIMIT = 50_000
#: what can stand in an address as it is; a caller can choose the id of its answer
_ID = re.compile(r"[A-Za-z0-9_.:~-]{1,200}")
_FIRST = re.compile(rb'\s*\{\s*"id"\s*:\s*"([^"\\]{1,200})"')


class Made(NamedTuple):
    business_id: int
    target_id: int


class Responses:
    """What this worker knows; the oldest are forgotten."""

    def __init__(self, limit: int = LIMIT):
        self.limit = limit
        self._made: OrderedDict[str, Made] = OrderedDict()

    def remember(self, response_id: str, target_id: int, business_id: int) -> None:
        self.keep(response_id, Made(business_id, target_id))

    def keep(self, response_id: str, made: Made) -> bool:
        """False for what is not kept: another business's id, or no engine's."""
        if not _ID.fullmatch(response_id):
            return False
        known = self._made.get(response_id)
        if known is not None and known.business_id != made.business_id:
            return False
        self._made[response_id] = made
        self._made.move_to_end(response_id)
        while len(self._made) > self.limit:
            self.forget(next(iter(self._made)))
        return True

    def forget(self, response_id: str) -> None:
        self._made.pop(response_id, None)

    def knows(self, response_id: str) -> bool:
        """Also of "", which is nobody's."""
        return not response_id or response_id in self._made

    def find(self, response_id: str, business_id: int) -> int | None:
        """The target that made it for this business."""
        made = self._made.get(response_id)
        return made.target_id if made is not None and made.business_id == business_id else None

    def of_another(self, response_id: str, business_id: int) -> bool:
        made = self._made.get(response_id)
        return made is not None and made.business_id != business_id

    async def ask_elsewhere(self, wanted: str, own: str = "") -> None:
        """Learn who made these, as far as anyone knows: ``wanted`` should be there, ``own`` should not.
        Raises Fault 503 where that cannot be found out.

        Here there is nobody else who would know.
        """


def id_at_the_head(data: bytes) -> str:
    """The id of a response that begins with it, as engines write it; "" for any other."""
    found = _FIRST.match(data)
    return found[1].decode(errors="replace") if found else ""


def check_named(responses: Responses, asked: Asked, business_id: int) -> None:
    """Raises Fault for an id that is another business's, or that nobody knows to go on from."""
    previous, own = asked.previous_response, asked.own_response
    if previous and responses.find(previous, business_id) is None:
        raise Fault(
            404,
            "response_not_found",
            f"This business made no response {previous[:100]!r} to go on from, or too long ago. Send the "
            "whole conversation instead.",
            param="previous_response_id",
        )
    if own and responses.of_another(own, business_id):
        raise Fault(
            400,
            "response_id_taken",
            f"There is a response {own[:100]!r} already. Leave request_id out, or take another.",
            param="request_id",
        )


def maker(responses: Responses, response_id: str, business_id: int) -> int:
    """The target to ask for a response. Raises Fault 404."""
    found = responses.find(response_id, business_id)
    if found is None:
        raise Fault(
            404,
            "response_not_found",
            f"The gateway does not know which engine made the response {response_id[:100]!r}: it was made "
            "too long ago, or by another business, or not here.",
        )
    return found
