"""Time limits on an event loop that somebody else may hold up."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

LOOP_TURN = 0.002  # seconds in which a loop that runs gets round to what lies in its sockets


class LoopDeadline:
    """`asyncio.timeout` for what a node is to answer within ``seconds``.

    A loop that stood still comes late to the end of it, and to answers that may have been there for long: it gets once
    more the time that it was late.
    """

    __slots__ = ("_alarm", "_seconds", "_timeout")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        self._alarm = loop.call_at(end, self._due, loop, end)
        return self

    def _due(self, loop: asyncio.AbstractEventLoop, end: float) -> None:
        now = loop.time()
        self._timeout.reschedule(now + min(now - end, self._seconds) + LOOP_TURN)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._alarm.cancel()
        await self._timeout.__aexit__(kind, error, tb)
