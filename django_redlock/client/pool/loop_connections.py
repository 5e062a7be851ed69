"""Idle asyncio connections. Each connection belongs to the event loop that opened it."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from typing import Any, NamedTuple


class _Idle(NamedTuple):
    connections: deque[Any]
    closer: AsyncGenerator[None, None]  # closes the connections when the loop ends


class LoopIdle:
    """The idle connections to one server, by event loop."""

    def __init__(self) -> None:
        self._by_loop: weakref.WeakKeyDictionary[Any, _Idle] = weakref.WeakKeyDictionary()

    async def open(self) -> deque[Any]:
        """Return the idle connections of the running loop. They will be closed when the loop ends."""
        loop = asyncio.get_running_loop()
        if (idle := self._by_loop.get(loop)) is None:
            connections: deque[Any] = deque()
            idle = self._by_loop[loop] = _Idle(connections, _close_with_loop(connections))
            await anext(idle.closer)
        return idle.connections

    def current(self) -> deque[Any] | None:
        """Return the idle connections of the running loop; ``None`` before `open` and after `aclear`."""
        idle = self._by_loop.get(asyncio.get_running_loop())
        return None if idle is None else idle.connections

    def clear(self) -> None:
        """Close the connections of all loops. Each loop closes its connections in its next round."""
        for loop in filter(None, [ref() for ref in self._by_loop.keyrefs()]):
            if (idle := self._by_loop.get(loop)) and (connections := list(drained(idle.connections))):
                with contextlib.suppress(RuntimeError):  # the loop has ended and has closed them
                    loop.call_soon_threadsafe(_close_all, connections)

    async def aclear(self) -> None:
        """Close the connections of the running loop."""
        idle = self._by_loop.pop(asyncio.get_running_loop(), None)
        if idle is not None:
            await idle.closer.aclose()


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


async def _close_with_loop(connections: deque[Any]) -> AsyncGenerator[None, None]:
    # An event loop that ends closes the asynchronous generators that were started on it.
    try:
        yield
    finally:
        # TLS exchanges a last message, so the loop must wait for the end of the connections.
        await asyncio.gather(*(connection.disconnect() for connection in connections), return_exceptions=True)
        connections.clear()
