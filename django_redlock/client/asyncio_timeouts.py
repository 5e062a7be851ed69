"""Timeouts for asyncio that tolerate an event loop that the application blocks."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

LOOP_TURN = 0.002  # seconds in which a loop that was blocked reads the data in its sockets


class LoopDeadline:
    """An asynchronous context manager like `asyncio.timeout`, for the reply of a node. Raises ``TimeoutError``.

    A blocked event loop notices late that ``seconds`` have passed, although the reply may have arrived in time. The
    deadline is then extended by the delay of the loop, by ``seconds`` at most.
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
