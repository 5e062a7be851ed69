"""Two classes of clients of a lock store, `SyncClient` and `AsyncClient`, with the same blocking methods.

The methods of an `AsyncClient` call asyncio methods of locks, so that each case runs for blocking code and for asyncio.
"""

from __future__ import annotations

import threading
from functools import partial
from types import TracebackType
from typing import Any, Self

from ....backends.base import Backend
from ....core.locks.lock import Lock
from .actors import TEST_TIMEOUT as TEST_TIMEOUT  # noqa: PLC0414  (for the modules of the suite)
from .actors import EventLoop, InTask


class SyncClient:
    """A client of a lock store that calls the blocking methods of a backend. It also has the backend's attributes."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def again(self) -> SyncClient:
        """Return a new client of the same backend object, for a forked child, where the parent's threads don't run."""
        return type(self)(self.backend)

    def adopt(self, handle: Any) -> Any:
        """Return ``handle``, created by another client of this class, as a handle for this client."""
        return handle

    def adopt_text(self, text: str, **options: Any) -> Any:
        """Return a handle for the lock that was handed off with ``text``, the return value of ``hand_off()``."""
        return self.backend.adopt(text, **options)

    def close(self) -> None:
        self.backend.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


class AsyncClient:
    """A client of a lock store that calls a backend's asyncio methods, on an event loop in a thread of its own.

    It has the blocking methods of the backend. A method with an asyncio variant runs this variant. Any other method
    returns a handle.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.loop = EventLoop()

    def again(self) -> AsyncClient:
        return type(self)(self.backend)

    def adopt(self, handle: Any) -> Any:
        return AsyncHandle(handle._lock, self.loop)

    def adopt_text(self, text: str, **options: Any) -> Any:
        return AsyncHandle(self.loop.run(self.backend.aadopt(text, **options)), self.loop)

    def close(self) -> None:
        self.loop.run(self.backend.aclose())
        self.loop.close()
        self.backend.close()

    def __getattr__(self, name: str) -> Any:
        if (method := getattr(self.backend, f"a{name}", None)) is not None:
            return lambda *args, **options: self.loop.run(method(*args, **options))
        make = getattr(self.backend, name)
        return lambda *args, **options: AsyncHandle(make(*args, **options), self.loop)


Client = SyncClient | AsyncClient


class AsyncHandle:
    """A lock whose blocking methods run the lock's asyncio methods on ``loop``. Other attributes are the lock's own."""

    def __init__(self, lock: Lock, loop: EventLoop) -> None:
        self._lock = lock
        self._loop = loop
        self._blocks: dict[int, InTask] = {}  # by thread id

    def __enter__(self) -> Self:
        block = InTask(self._loop)  # a coroutine enters and leaves its block in one task
        try:
            block.run(self._lock.__aenter__)
        except BaseException:
            block.close()
            raise
        self._blocks[threading.get_ident()] = block
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        block = self._blocks.pop(threading.get_ident())
        try:
            block.run(partial(self._lock.__aexit__, kind, error, tb))
        finally:
            block.close()

    def __getattr__(self, name: str) -> Any:
        if (method := getattr(self._lock, f"a{name}", None)) is not None:
            return lambda *args, **options: self._loop.run(method(*args, **options))
        return getattr(self._lock, name)

    def __repr__(self) -> str:
        return repr(self._lock)
