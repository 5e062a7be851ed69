"""The wake-up of one waiting thread or asyncio task within one process."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

from ..caller_identity import running_loop


class WakeEvent:
    """A one-shot event that wakes the thread or task that created the event."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = running_loop()
        event: Any = threading.Lock() if self._loop is None else asyncio.Event()
        if self._loop is None:
            event.acquire()
        self._event = event

    def set(self) -> None:
        """Wake the thread or task. May be called once only, from any thread."""
        if self._loop is None:
            self._event.release()
        elif self._loop is running_loop():
            self._event.set()
        else:
            with suppress(RuntimeError):  # the loop has ended, and its tasks with it
                self._loop.call_soon_threadsafe(self._event.set)

    def wait(self, seconds: float) -> None:
        """Block until the event is set, for ``seconds`` at most. Works in the thread that created the event only.

        Raises ``RuntimeError`` in a coroutine, because the event loop may have to set the event.
        """
        if self._loop is not None:
            raise RuntimeError("would block the event loop: in a coroutine use the twin for asyncio, such as aextend()")
        self._event.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))

    async def wait_async(self, seconds: float) -> None:
        """`wait` for asyncio."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
