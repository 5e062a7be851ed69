"""Performs a request to all nodes of a quorum, in the calling thread or asyncio task."""

from __future__ import annotations

import asyncio
import select
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...core.flow.drivers import adrive, drive
from ...core.flow.requests import Fault, SendToAll
from ..nodes.node import Node
from .broadcast import Broadcast, Readable
from .in_flight import calls_of
from .quorum_node import QuorumNode

MAX_IN_FLIGHT = 8  # requests of one event loop to one node at the same time
LOOP_TURN = 0.002  # seconds in which a loop that was blocked reads the data in its sockets


class LoopPoll:
    """`select.poll` for the running event loop: `poll` suspends the calling task instead of blocking the loop."""

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


class LoopSlots(asyncio.Semaphore):
    """The slots of an event loop for requests to all nodes, `MAX_IN_FLIGHT` of them. A request in flight has a slot."""

    def __init__(self) -> None:
        super().__init__(MAX_IN_FLIGHT)
        self.last_reply = 0.0  # monotonic seconds at which a node last replied to a request with a slot

    async def take(self, seconds: float, deadline: float) -> Fault | None:
        """Wait for a slot. Returns ``None``, or a `Fault` if no slot becomes free in time.

        The wait ends when no node has replied for ``seconds``. It also ends at ``deadline`` (monotonic seconds), or
        after ``seconds`` if that is later.
        """
        deadline = max(deadline, time.monotonic() + seconds)
        while self.locked():
            if (left := deadline - time.monotonic()) <= 0:
                return Fault(TimeoutError(f"{MAX_IN_FLIGHT} requests of this event loop are in flight"))
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, left)):
                    await self.acquire()
                    return None
            await asyncio.sleep(LOOP_TURN)
            if time.monotonic() - self.last_reply > seconds + LOOP_TURN:
                return Fault(TimeoutError("no reply in time"))
        await self.acquire()
        return None


class FanOut:
    """Sends requests to all nodes, and reads the replies until the outcome is certain.

    Threads and event loops share the connections. ``timeout``: the node timeout in seconds. ``greeting``: an encoded
    command that is sent first on each new connection.
    """

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self.timeout = timeout
        self.nodes = [QuorumNode(node, timeout, greeting) for node in nodes]
        # By event loop, while it has requests. The values refer to the loop, so weak keys would keep it alive.
        self._slots: weakref.WeakValueDictionary[Any, LoopSlots] = weakref.WeakValueDictionary()

    def perform(self, request: SendToAll) -> list[Any]:
        """Perform ``request``. Blocks until the outcome is certain or the remaining nodes have timed out.

        Returns the replies in the order of the requests. A reply is a `Fault` if the node is unavailable, and ``None``
        if the reply was not waited for.
        """
        poll = select.poll()
        return drive(Broadcast(self.nodes, request, poll).steps(), lambda seconds: poll.poll(seconds * 1000))

    async def aperform(self, request: SendToAll) -> list[Any]:
        """`perform` for asyncio. At most `MAX_IN_FLIGHT` requests of an event loop are performed at the same time.

        If no slot becomes free in time (`LoopSlots.take`), sends nothing and returns a `Fault` for each node.
        """
        slots = self._slots.setdefault(asyncio.get_running_loop(), LoopSlots())
        if (fault := await slots.take(self.timeout, request.deadline)) is not None:
            for each in request.requests if request.kind == "release" else ():
                self.nodes[each.node].keeper.repeat(calls_of(each))
            return [fault] * len(request.requests)
        try:
            poll = LoopPoll()
            replies = await adrive(Broadcast(self.nodes, request, poll).steps(), poll.poll)
            if any(reply is not None and type(reply) is not Fault for reply in replies):
                slots.last_reply = time.monotonic()
            return replies
        finally:
            slots.release()

    def close(self) -> None:
        """Close all connections to the nodes. The nodes still run the scripts that they have received."""
        for node in self.nodes:
            node.close()
