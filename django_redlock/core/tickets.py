"""Waiting for one's turn within the process: for threads, and for the tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any, NamedTuple

from .callers import running_loop
from .lease import Claim, Lease


class Bell:
    """Wakes one who waits: the thread, or the task, that has made it."""

    __slots__ = ("_bell", "_loop")

    def __init__(self) -> None:
        self._loop = running_loop()
        bell: Any = threading.Lock() if self._loop is None else asyncio.Event()
        if self._loop is None:
            bell.acquire()
        self._bell = bell

    def ring(self) -> None:
        """Wake the one who waits; once in the life of a bell."""
        if self._loop is None:
            self._bell.release()
        elif self._loop is running_loop():
            self._bell.set()
        else:
            with suppress(RuntimeError):  # the loop has ended, and its tasks with it
                self._loop.call_soon_threadsafe(self._bell.set)

    def wait(self, seconds: float) -> None:
        """Return when it rings, or after ``seconds``."""
        self._bell.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))

    async def await_(self, seconds: float) -> None:
        """`wait` for asyncio."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._bell.wait()


class Ticket(Bell):
    """A place in a queue, made by the one who waits.

    ``lease``: what was handed over. ``called``: now it is this one's turn to wait in the store. ``chosen``: it has left
    the queue, since a lease is about to be handed over. ``gone``: it doesn't wait any more.
    """

    __slots__ = ("__weakref__", "called", "chosen", "claim", "gone", "lease")

    def __init__(self, claim: Claim) -> None:
        super().__init__()
        self.claim = claim
        self.called = self.chosen = self.gone = False
        self.lease: Lease | None = None


class Turn(NamedTuple):
    """What a flow asks for: wait until ``ticket`` rings, ``seconds`` at most."""

    ticket: Bell
    seconds: float
