"""The wake-up of one waiting thread or asyncio task within one process, and the request with which a flow waits."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import NamedTuple

from ..process.caller import check_may_block, running_loop


class WakeEvent:
    """A one-shot event that wakes the thread or task that created the event."""

    __slots__ = ("_event", "_lock", "_loop")

    def __init__(self) -> None:
        self._loop = running_loop()
        self._event = asyncio.Event()
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread or task. May be called from any thread, and again."""
        with suppress(RuntimeError):  # set already: a waiter for several stripes is woken by each of them
            self._lock.release()
        if self._loop is running_loop():
            self._event.set()
        elif self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and its tasks with it
                self._loop.call_soon_threadsafe(self._event.set)

    def wait(self, seconds: float) -> None:
        """Block until the event is set, for ``seconds`` at most.

        Raises ``RuntimeError`` in a coroutine, because the event loop may have to set the event.
        """
        check_may_block("this", "the twin for asyncio, such as aextend()")
        self._lock.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))

    async def wait_async(self, seconds: float) -> None:
        """`wait` for asyncio."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


class AwaitTurn(NamedTuple):
    """A request that a flow yields: wait until ``event`` is set, for ``seconds`` at most."""

    event: WakeEvent
    seconds: float
