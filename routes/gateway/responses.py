"""Which target made a response that can be asked for by its id. Bounded: the oldest are forgotten. Pure."""

from __future__ import annotations

from collections import OrderedDict

LIMIT = 50_000


class Responses:
    """Kept by business: one business does not find another's, nor goes on from it."""

    def __init__(self, limit: int = LIMIT):
        self.limit = limit
        self._made: OrderedDict[tuple[int, str], int] = OrderedDict()
        self._makers: dict[str, int] = {}

    def remember(self, response_id: str, target_id: int, business_id: int) -> None:
        if len(response_id) > 200:
            return
        self._made[business_id, response_id] = target_id
        self._made.move_to_end((business_id, response_id))
        self._makers[response_id] = business_id
        while len(self._made) > self.limit:
            (_business_id, forgotten), _target_id = self._made.popitem(last=False)
            self._makers.pop(forgotten, None)

    def find(self, response_id: str, business_id: int) -> int | None:
        return self._made.get((business_id, response_id))

    def of_another(self, response_id: str, business_id: int) -> bool:
        """Whether it is known that only another business made this response."""
        maker = self._makers.get(response_id)
        return maker is not None and (business_id, response_id) not in self._made
