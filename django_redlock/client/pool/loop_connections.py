"""The asyncio connections to a server, by event loop. Each connection belongs to the event loop that opened it."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, NamedTuple

from .shared_connection import SharedConnection


class OpenConnections:
    """The connections of one event loop to one server: idle connections, and one that all tasks share."""

    def __init__(self) -> None:
        self.idle: deque[Any] = deque()
        self.shared: SharedConnection | None = None
        self._opening: asyncio.Task[SharedConnection] | None = None

    async def open_shared(self, connect: Callable[[], Coroutine[Any, Any, SharedConnection]]) -> SharedConnection:
        """Open the shared connection with ``connect``, and return the connection.

        Tasks that call this method at the same time get the same connection.
        """
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open(connect))
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # mark as retrieved
        return await asyncio.shield(self._opening)  # a cancelled task must not cancel the others' connection

    async def _open(self, connect: Callable[[], Coroutine[Any, Any, SharedConnection]]) -> SharedConnection:
        self.shared = await connect()
        return self.shared

    def take(self) -> list[Any]:
        """Remove all connections, and return them. Safe while other threads use them."""
        shared, self.shared = self.shared, None
        return [*drained(self.idle), *filter(None, [shared])]


class _OfLoop(NamedTuple):
    connections: OpenConnections
    closer: AsyncGenerator[None, None]  # closes the connections when the loop ends


class LoopPool:
    """The connections to one server, by event loop."""

    def __init__(self) -> None:
        self._by_loop: weakref.WeakKeyDictionary[Any, _OfLoop] = weakref.WeakKeyDictionary()

    async def open(self) -> OpenConnections:
        """Return the connections of the running loop. They will be closed when the loop ends."""
        loop = asyncio.get_running_loop()
        if (found := self._by_loop.get(loop)) is None:
            self._forget_closed_loops()
            connections = OpenConnections()
            found = self._by_loop[loop] = _OfLoop(connections, _close_with_loop(connections, self._by_loop))
            await anext(found.closer)
        return found.connections

    def _forget_closed_loops(self) -> None:
        """Drop the connections of loops that were closed without ``shutdown_asyncgens()``.

        Nothing can close these connections but the garbage collector: each refers to its loop.
        """
        for loop in filter(None, [ref() for ref in self._by_loop.keyrefs()]):
            if loop.is_closed():
                self._by_loop.pop(loop, None)

    def current(self) -> OpenConnections | None:
        """Return the connections of the running loop; ``None`` before `open` and after `aclear`."""
        found = self._by_loop.get(asyncio.get_running_loop())
        return None if found is None else found.connections

    def clear(self) -> None:
        """Close the connections of all loops. Each loop closes its connections in its next round."""
        for loop in filter(None, [ref() for ref in self._by_loop.keyrefs()]):
            if (found := self._by_loop.get(loop)) and (connections := found.connections.take()):
                with contextlib.suppress(RuntimeError):  # the loop has ended and has closed them
                    loop.call_soon_threadsafe(_close_all, connections)

    async def aclear(self) -> None:
        """Close the connections of the running loop."""
        found = self._by_loop.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.closer.aclose()


def drained(connections: deque[Any]) -> Iterator[Any]:
    """Remove all connections from the deque, and yield them. Safe while other threads use the deque."""
    while True:
        try:
            yield connections.pop()
        except IndexError:
            return


def _close_all(connections: list[Any]) -> None:
    for connection in connections:
        connection._close()


async def _close_with_loop(
    connections: OpenConnections, by_loop: weakref.WeakKeyDictionary[Any, _OfLoop]
) -> AsyncGenerator[None, None]:
    # An event loop that ends closes the asynchronous generators that were started on it.
    try:
        yield
    finally:
        by_loop.pop(asyncio.get_running_loop(), None)  # the value refers to the loop, and would keep it alive
        # TLS exchanges a last message, so the loop must wait for the end of the connections.
        await asyncio.gather(*(connection.disconnect() for connection in connections.take()), return_exceptions=True)
