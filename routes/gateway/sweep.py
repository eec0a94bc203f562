"""Deadlines of many things by one timer: each is looked at a few times a second, none has a timer."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Protocol, runtime_checkable

import structlog

logger = structlog.get_logger("routes.gateway")


class Swept(Protocol):
    def sweep(self, now: float) -> None:
        """Look at own deadlines; ``now`` is of time.monotonic. May remove itself from the sweeper."""


@runtime_checkable
class Ends(Protocol):
    """A member that can be ended when something of it failed."""

    def crashed(self, error: BaseException) -> None: ...


class Sweeper:
    """Deadlines hold to within ``every_s``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, every_s: float = 0.25):
        self.loop = loop
        self.every_s = every_s
        self.members: set[Swept] = set()
        #: the time (monotonic) at the last look
        self.now = monotonic()
        self._timer = loop.call_later(every_s, self._look)

    def _look(self) -> None:
        self._timer = self.loop.call_later(self.every_s, self._look)
        self.now = now = monotonic()
        for member in tuple(self.members):
            try:
                member.sweep(now)
            except Exception as error:
                logger.error("a deadline could not be looked at", exc_info=error)
                self.members.discard(member)
                if isinstance(member, Ends):
                    member.crashed(error)

    def close(self) -> None:
        self._timer.cancel()
