"""Limits the requests of one event loop that are in flight at the same time."""

from __future__ import annotations

import asyncio

from ...core.flow.requests import Fault
from ..asyncio_timeouts import LoopDeadline

MAX_IN_FLIGHT = 8  # requests of one event loop to one node at the same time


class ConcurrencyLimit:
    """Limits the requests of an event loop to `MAX_IN_FLIGHT` at the same time, with a slot for each.

    A task waits for a slot as long as requests of other tasks are answered. The task gives up when none of them was
    answered for ``timeout`` seconds.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._last_answer = 0.0

    async def acquire(self) -> Fault | None:
        """Wait for a slot and return ``None``.

        Returns a `Fault` if, for ``timeout`` seconds, none of the requests that have a slot is answered.
        """
        while self._slots.locked():
            try:
                async with LoopDeadline(self._timeout):
                    await self._slots.acquire()
                    return None
            except TimeoutError as error:
                if asyncio.get_running_loop().time() - self._last_answer > self._timeout:
                    return Fault(TimeoutError(f"no reply in time: {error}"))
        await self._slots.acquire()
        return None

    def release(self, answered: bool) -> None:
        """Free the slot of a request. ``answered`` says whether the request got a reply."""
        if answered:
            self._last_answer = asyncio.get_running_loop().time()
        self._slots.release()
