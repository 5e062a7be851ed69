"""Two classes of clients of a lock store, `SyncClient` and `AsyncClient`, with the same blocking methods.

The methods of an `AsyncClient` call asyncio methods of locks, so that each case runs for blocking code and for asyncio.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, wait
from types import TracebackType
from typing import Any, Self, TypeVar

from ....backends.base import Backend
from ....core.locks.lock import Lock

T = TypeVar("T")

TEST_TIMEOUT = 20  # seconds after which a case gives up on an expected event


class SyncClient:
    """A client of a lock store that calls the blocking methods of a backend, whose attributes it has."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def again(self) -> SyncClient:
        """Return a new client of the same backend object, for a forked child, where the parent's threads don't run."""
        return type(self)(self.backend)

    def adopt(self, handle: Any) -> Any:
        """Return ``handle``, which another client of this class made, as a handle for this client."""
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

    It has the blocking methods of the backend. A method with an asyncio variant runs that, and any other method returns
    a handle.
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


class EventLoop:
    """An event loop in a thread of its own, which runs until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="conformance-loop", daemon=True)
        self._thread.start()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the coroutine as a task on the loop. Returns a future of its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop. Returns its result."""
        return self.begin(coroutine).result(4 * TEST_TIMEOUT)  # coroutines that wait have shorter timeouts

    def call(self, function: Any, *args: Any) -> None:
        """Schedule a plain function on the loop."""
        self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """Stop the loop as `asyncio.run()` does. Running tasks are cancelled."""
        self.run(_cancel_all())
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TEST_TIMEOUT)
        self._loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class AsyncHandle:
    """A lock whose blocking methods run the lock's asyncio methods on ``loop``. Other attributes are the lock's own."""

    def __init__(self, lock: Lock, loop: EventLoop) -> None:
        self._lock = lock
        self._loop = loop
        self._blocks: dict[int, _Block] = {}  # by thread id

    def __enter__(self) -> Self:
        block = _Block(self._lock, self._loop)
        self._blocks[threading.get_ident()] = block
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._blocks.pop(threading.get_ident()).leave(error)

    def __getattr__(self, name: str) -> Any:
        if (method := getattr(self._lock, f"a{name}", None)) is not None:
            return lambda *args, **options: self._loop.run(method(*args, **options))
        return getattr(self._lock, name)

    def __repr__(self) -> str:
        return repr(self._lock)


class _Block:
    """An `async with` block that runs in a single task from start to end, as in a coroutine."""

    def __init__(self, lock: Lock, loop: EventLoop) -> None:
        self._loop = loop
        self._left = asyncio.Event()
        self._error: BaseException | None = None
        entered: Future[None] = Future()
        self._task = loop.begin(self._hold(lock, entered))
        wait([entered, self._task], TEST_TIMEOUT, FIRST_COMPLETED)
        if not entered.done():
            self._task.result(0)

    async def _hold(self, lock: Lock, entered: Future[None]) -> None:
        async with lock:
            entered.set_result(None)
            await self._left.wait()
            if self._error is not None:
                raise self._error

    def leave(self, error: BaseException | None) -> None:
        self._error = error
        self._loop.call(self._left.set)
        try:
            self._task.result(TEST_TIMEOUT)
        except BaseException as raised:
            if raised is not error:  # the block's own error is raised by the caller
                raise
        else:
            assert error is None, "the lock swallowed the body's error"
