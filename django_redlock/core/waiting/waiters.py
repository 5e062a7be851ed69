"""Waiters in local queues, and the wake-up of threads and asyncio tasks within one process."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from enum import Enum, auto
from typing import Any, NamedTuple

from ..caller_identity import running_loop
from ..values import Claim, Lease


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


class WaiterState(Enum):
    """The states of a waiter. The state changes under the mutex of the local queue only.

    =========  ===========================================================  ======================================
    state      meaning                                                      next
    =========  ===========================================================  ======================================
    QUEUED     in the queue, behind the leader                              any
    LEADING    out of the queue; asks the store, and waits in the store     LEFT
    EXPIRED    out of the queue; time is up, or the hand-over was           LEFT
               interrupted; asks the store itself
    RECEIVING  out of the queue; a release sends the hand-over request      GRANTED, LEFT
    GRANTED    has a lease                                                  LEFT
    LEFT       waits no longer; a lease that arrives later is released
    =========  ===========================================================  ======================================
    """

    QUEUED = auto()
    LEADING = auto()
    EXPIRED = auto()
    RECEIVING = auto()
    GRANTED = auto()
    LEFT = auto()


class Waiter(WakeEvent):
    """A thread or task in a local queue. ``caller`` identifies the thread or task, which must create the waiter."""

    __slots__ = ("__weakref__", "caller", "claim", "lease", "state")

    def __init__(self, caller: int, claim: Claim) -> None:
        super().__init__()
        self.caller = caller
        self.claim = claim
        self.state = WaiterState.QUEUED
        self.lease: Lease | None = None

    def may_have_lease(self) -> bool:
        """Return whether the waiter may have got a lease from the release that removed it from the queue."""
        return self.state in (WaiterState.GRANTED, WaiterState.LEFT)

    def lead(self) -> None:
        """Set the state LEADING, and wake the waiter, so that it asks the store."""
        self.state = WaiterState.LEADING
        self.set()

    def grant(self, lease: Lease) -> None:
        """Give ``lease`` to the waiter, and wake the waiter."""
        self.lease, self.state = lease, WaiterState.GRANTED
        self.set()


class AwaitTurn(NamedTuple):
    """A request that a flow yields: wait until ``event`` is set, for ``seconds`` at most."""

    event: WakeEvent
    seconds: float
