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
from ....core.lock_info import LockInfo
from ....core.locks.lock import Lock
from ....core.locks.striped import Striped

T = TypeVar("T")

TEST_TIMEOUT = 20  # seconds after which a case gives up on an expected event


class SyncClient:
    """A client of a lock store that calls the backend's blocking methods."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def again(self) -> SyncClient:
        """Return a new client of the same backend object, for a forked child, where the parent's threads don't run."""
        return type(self)(self.backend)

    def adopt(self, handle: Any) -> Any:
        """Return ``handle``, which another client of this class made, as a handle for this client."""
        return handle

    def lock(self, name: str, **options: Any) -> Any:
        return self.backend.lock(name, **options)

    def semaphore(self, name: str, **options: Any) -> Any:
        return self.backend.semaphore(name, **options)

    def striped(self, name: str, stripes: int, **options: Any) -> Any:
        return self.backend.striped(name, stripes, **options)

    def multilock(self, names: Any, **options: Any) -> Any:
        return self.backend.multilock(names, **options)

    def adopt_text(self, text: str, **options: Any) -> Any:
        """Return a handle for the lock that was handed off with ``text``, the return value of ``hand_off()``."""
        return self.backend.adopt(text, **options)

    def held(self, pattern: str = "*", limit: int | None = None) -> list[LockInfo]:
        return self.backend.held(pattern, limit)

    def describe(self, name: str) -> LockInfo | None:
        return self.backend.describe(name)

    def force_release(self, name: str, digest: str = "") -> bool:
        return self.backend.force_release(name, digest)

    def health(self) -> list[dict[str, Any]]:
        return self.backend.health()

    def close(self) -> None:
        self.backend.close()


class AsyncClient:
    """A client of a lock store that calls the backend's asyncio methods, on an event loop in a thread of its own."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.loop = EventLoop()

    def again(self) -> AsyncClient:
        return type(self)(self.backend)

    def adopt(self, handle: Any) -> Any:
        return AsyncHandle(handle._lock, self.loop)

    def lock(self, name: str, **options: Any) -> Any:
        return AsyncHandle(self.backend.lock(name, **options), self.loop)

    def semaphore(self, name: str, **options: Any) -> Any:
        return AsyncHandle(self.backend.semaphore(name, **options), self.loop)

    def striped(self, name: str, stripes: int, **options: Any) -> Any:
        return AsyncHandle(self.backend.striped(name, stripes, **options), self.loop)

    def multilock(self, names: Any, **options: Any) -> Any:
        return AsyncHandle(self.backend.multilock(names, **options), self.loop)

    def adopt_text(self, text: str, **options: Any) -> Any:
        return AsyncHandle(self.loop.run(self.backend.aadopt(text, **options)), self.loop)

    def held(self, pattern: str = "*", limit: int | None = None) -> list[LockInfo]:
        return self.loop.run(self.backend.aheld(pattern, limit))

    def describe(self, name: str) -> LockInfo | None:
        return self.loop.run(self.backend.adescribe(name))

    def force_release(self, name: str, digest: str = "") -> bool:
        return self.loop.run(self.backend.aforce_release(name, digest))

    def health(self) -> list[dict[str, Any]]:
        return self.loop.run(self.backend.ahealth())

    def close(self) -> None:
        self.loop.run(self.backend.aclose())
        self.loop.close()
        self.backend.close()


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

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._loop.run(self._lock.aacquire(blocking, timeout))

    def release(self) -> None:
        self._loop.run(self._lock.arelease())

    def extend(self, ttl: Any = None) -> float:
        return self._loop.run(self._lock.aextend(ttl))

    def hand_off(self, ttl: Any = None) -> str:
        return self._loop.run(self._lock.ahand_off(ttl))

    def switch(self, without: Any = ()) -> bool:
        assert isinstance(self._lock, Striped)
        return self._loop.run(self._lock.aswitch(without))

    def locked(self) -> bool:
        return self._loop.run(self._lock.alocked())

    def owned(self) -> bool:
        return self._loop.run(self._lock.aowned())

    def __enter__(self) -> Self:
        block = _Block(self._lock, self._loop)
        self._blocks[threading.get_ident()] = block
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._blocks.pop(threading.get_ident()).leave(error)

    def __getattr__(self, name: str) -> Any:
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
