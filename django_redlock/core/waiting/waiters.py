"""Waiting for one's turn within the process: for threads, and for the tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any, NamedTuple

from ..context import running_loop
from ..values import Claim, Lease


class WakeEvent:
    """Wakes one who waits: the thread, or the task, that has made it."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = running_loop()
        bell: Any = threading.Lock() if self._loop is None else asyncio.Event()
        if self._loop is None:
            bell.acquire()
        self._event = bell

    def set(self) -> None:
        """Wake the one who waits; once in the life of a bell."""
        if self._loop is None:
            self._event.release()
        elif self._loop is running_loop():
            self._event.set()
        else:
            with suppress(RuntimeError):  # the loop has ended, and its tasks with it
                self._loop.call_soon_threadsafe(self._event.set)

    def wait(self, seconds: float) -> None:
        """Return when it rings, or after ``seconds``."""
        self._event.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))

    async def wait_async(self, seconds: float) -> None:
        """`wait` for asyncio."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


class Waiter(WakeEvent):
    """A place in a queue, made by the one who waits.

    ``lease``: what was handed over. ``called``: now it is this one's turn to wait in the store. ``chosen``: it has left
    the queue, since a lease is about to be handed over. ``gone``: it doesn't wait any more.
    """

    __slots__ = ("__weakref__", "abandoned", "claim", "lease", "promoted", "receiving")

    def __init__(self, claim: Claim) -> None:
        super().__init__()
        self.claim = claim
        self.promoted = self.receiving = self.abandoned = False
        self.lease: Lease | None = None


class AwaitTurn(NamedTuple):
    """What a flow asks for: wait until ``ticket`` rings, ``seconds`` at most."""

    event: WakeEvent
    seconds: float
