"""A limit of time for asyncio that allows for a blocked event loop."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

LOOP_TURN = 0.002  # seconds in which a loop that was blocked reads the data in its sockets


class LoopDeadline:
    """Async context manager that limits the wait for a node's reply to ``seconds``. Raises ``TimeoutError``.

    If the application blocks the event loop, the loop notices the deadline late, although the reply may have arrived in
    time. The wait then goes on for as long as the loop was late, at most for ``seconds`` more.
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
