"""Performs a request to all nodes of a quorum, in the calling thread or asyncio task."""

from __future__ import annotations

import asyncio
import select
import time
import weakref
from collections.abc import Sequence
from typing import Any

from ...core.flow.drivers import adrive, drive
from ...core.flow.requests import Fault, SendToAll
from ..loop_connection import LoopDeadline
from ..nodes.protocol import Node
from .broadcast import Broadcast, Poll, Readable
from .node_connections import NodeConnections

MAX_IN_FLIGHT = 8  # requests of one event loop to one node at the same time


class LoopPoll:
    """A `select.poll` for the running event loop: `poll` suspends the calling task instead of blocking the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll = select.poll()
        self._waiting: asyncio.Future[None] | None = None

    def register(self, number: int, events: int) -> None:
        self._poll.register(number, events)
        self._loop.add_reader(number, self._wake)

    def unregister(self, number: int) -> None:
        self._loop.remove_reader(number)
        self._poll.unregister(number)

    async def poll(self, seconds: float) -> Readable:
        """Wait up to ``seconds``, and return the file descriptors that are readable now, with their events."""
        if seconds > 0:
            self._waiting = self._loop.create_future()
            timer = self._loop.call_later(seconds, self._wake)
            try:
                await self._waiting
            finally:
                timer.cancel()
        return self._poll.poll(0)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class ConcurrencyLimit:
    """Limits the requests of an event loop to `MAX_IN_FLIGHT` at the same time, with a slot for each.

    A task waits for a slot as long as requests of other tasks are answered, and not beyond its deadline. The task gives
    up when none of them was answered for ``timeout`` seconds.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._last_answer = 0.0

    async def acquire(self, deadline: float) -> Fault | None:
        """Wait for a slot and return ``None``.

        Returns a `Fault` if, for ``timeout`` seconds, none of the requests that have a slot is answered, and if all
        slots are in use until ``deadline`` (monotonic seconds), but not before ``timeout`` seconds have passed.
        """
        deadline = max(deadline, time.monotonic() + self._timeout)
        while self._slots.locked():
            try:
                async with LoopDeadline(max(0.0, min(self._timeout, deadline - time.monotonic()))):
                    await self._slots.acquire()
                    return None
            except TimeoutError:
                if asyncio.get_running_loop().time() - self._last_answer > self._timeout:
                    return Fault(TimeoutError("no reply in time"))
                if time.monotonic() >= deadline:
                    return Fault(TimeoutError(f"{MAX_IN_FLIGHT} requests of this event loop are in flight"))
        await self._slots.acquire()
        return None

    def release(self, answered: bool) -> None:
        """Free the slot of a request. ``answered`` says whether the request got a reply."""
        if answered:
            self._last_answer = asyncio.get_running_loop().time()
        self._slots.release()


class FanOut:
    """Sends requests to all nodes, and reads the replies until the outcome is certain.

    Threads and event loops share the connections. ``timeout`` is the node timeout in seconds. ``greeting`` is an
    encoded command that is sent on each new connection.
    """

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self.connections = NodeConnections(nodes, timeout, greeting)
        # By event loop, while it has requests. The values refer to the loop, so weak keys would keep it alive.
        self._slots: weakref.WeakValueDictionary[Any, ConcurrencyLimit] = weakref.WeakValueDictionary()

    def perform(self, request: SendToAll) -> list[Any]:
        """Perform ``request``. Blocks until the outcome is certain or the remaining nodes have timed out.

        Returns the replies in the order of the requests. A reply is a `Fault` if the node is unavailable, and ``None``
        if the reply was not waited for.
        """
        poll = select.poll()
        return drive(self._broadcast(request, poll).steps(), lambda seconds: poll.poll(seconds * 1000))

    async def aperform(self, request: SendToAll) -> list[Any]:
        """`perform` for asyncio. At most `MAX_IN_FLIGHT` requests of an event loop are performed at the same time.

        Waits for a free slot first. If no request of the loop is answered for as long as the node timeout, sends
        nothing and returns a `Fault` for each node's request.
        """
        connections = self.connections
        slots = self._slots.setdefault(asyncio.get_running_loop(), ConcurrencyLimit(connections.timeout))
        if (fault := await slots.acquire(request.deadline)) is not None:
            for each in request.requests:
                connections.not_sent(request.acquisition_id, request.kind, each)
            return [fault] * len(request.requests)
        answered = False
        try:
            poll = LoopPoll()
            replies = await adrive(self._broadcast(request, poll).steps(), poll.poll)
            answered = any(reply is not None and type(reply) is not Fault for reply in replies)
            return replies
        finally:
            slots.release(answered)

    def _broadcast(self, request: SendToAll, poll: Poll) -> Broadcast:
        self.connections.begin_request(time.monotonic())
        return Broadcast(self.connections, request, poll)

    def close(self) -> None:
        """Close all connections to the nodes. The nodes still run the scripts that they have received."""
        self.connections.close()
