"""The connection to a server that all tasks of an event loop share, by event loop."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, NamedTuple

from .loop_connection import LoopConnection


class LoopEntry:
    """The connection that the tasks of one event loop share, and the task that opens it."""

    def __init__(self) -> None:
        self.shared: LoopConnection | None = None
        self._opening: asyncio.Task[LoopConnection] | None = None

    async def open_shared(self, connect: Callable[[], Coroutine[Any, Any, LoopConnection]]) -> LoopConnection:
        """Open the shared connection with ``connect``, and return the connection.

        Tasks that call this method at the same time get the same connection.
        """
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open(connect))
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # mark as retrieved
        return await asyncio.shield(self._opening)  # a cancelled task must not cancel the others' connection

    async def _open(self, connect: Callable[[], Coroutine[Any, Any, LoopConnection]]) -> LoopConnection:
        self.shared = await connect()
        return self.shared

    def retire(self) -> None:
        shared, self.shared = self.shared, None
        if shared is not None:
            shared.retire()


class _Registered(NamedTuple):
    entry: LoopEntry
    closer: AsyncGenerator[None, None]  # closes the connection when the loop ends


class LoopEntries:
    """The shared connections to one server, by event loop."""

    def __init__(self) -> None:
        self._by_loop: weakref.WeakKeyDictionary[Any, _Registered] = weakref.WeakKeyDictionary()

    async def open(self) -> LoopEntry:
        """Return the entry of the running loop. Its connection will be closed when the loop ends."""
        loop = asyncio.get_running_loop()
        if (found := self._by_loop.get(loop)) is None:
            self._forget_closed_loops()
            entry = LoopEntry()
            found = self._by_loop[loop] = _Registered(entry, _close_with_loop(entry, self._by_loop))
            await anext(found.closer)
        return found.entry

    def _forget_closed_loops(self) -> None:
        """Close the connections of loops that were closed without ``shutdown_asyncgens()``."""
        for loop in self._loops():
            if loop.is_closed() and (found := self._by_loop.pop(loop, None)):
                found.entry.retire()

    def _loops(self) -> Iterator[asyncio.AbstractEventLoop]:
        yield from filter(None, [ref() for ref in self._by_loop.keyrefs()])

    def current(self) -> LoopEntry | None:
        """Return the entry of the running loop; ``None`` before `open` and after `aclear`."""
        found = self._by_loop.get(asyncio.get_running_loop())
        return None if found is None else found.entry

    def clear(self) -> None:
        """Close the connections of all loops. Each loop closes its connection in its next round."""
        for loop in self._loops():
            if (found := self._by_loop.get(loop)) and found.entry.shared is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended and has closed it
                    loop.call_soon_threadsafe(found.entry.retire)

    async def aclear(self) -> None:
        """Close the connection of the running loop."""
        found = self._by_loop.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.closer.aclose()


async def _close_with_loop(
    entry: LoopEntry, by_loop: weakref.WeakKeyDictionary[Any, _Registered]
) -> AsyncGenerator[None, None]:
    # An event loop that ends closes the asynchronous generators that were started on it.
    try:
        yield
    finally:
        by_loop.pop(asyncio.get_running_loop(), None)  # the value refers to the loop, and would keep it alive
        entry.retire()
