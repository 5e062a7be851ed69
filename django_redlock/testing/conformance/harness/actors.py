"""Threads and asyncio tasks that execute commands in order, for kinds of locks that depend on the caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

TEST_TIMEOUT = 20  # seconds after which a case gives up on an expected event


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


class InThread:
    """A thread that calls methods of locks. ``do`` returns the result of a call, ``begin`` a future of the result."""

    def __init__(self, _loop: EventLoop) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="person")

    def begin(self, lock: Any, method: str, *args: Any) -> Future[Any]:
        return self._pool.submit(lambda: getattr(lock, method)(*args))

    def do(self, lock: Any, method: str, *args: Any) -> Any:
        return self.begin(lock, method, *args).result(TEST_TIMEOUT)

    def see(self, lock: Any, attribute: str) -> Any:
        """Return the value of a lock's attribute, read in this thread.

        If the attribute is a method, it is called, and its result is returned. The method must do no I/O.
        """
        return self._pool.submit(_look, lock, attribute).result(TEST_TIMEOUT)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class InTask:
    """An asyncio task with the interface of `InThread`. It calls the asyncio variant of each method of a lock."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._jobs: asyncio.Queue[tuple[Future[Any], Callable[[], Awaitable[Any]]] | None] = asyncio.Queue()
        self._life = loop.begin(self._live())

    async def _live(self) -> None:
        while (job := await self._jobs.get()) is not None:
            future, work = job
            try:
                future.set_result(await work())
            except Exception as error:  # noqa: BLE001  (raised by result())
                future.set_exception(error)
            except BaseException:
                future.cancel()
                raise

    def _begin(self, work: Callable[[], Awaitable[Any]]) -> Future[Any]:
        future: Future[Any] = Future()
        self._loop.call(self._jobs.put_nowait, (future, work))
        return future

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine function in the task. Returns its result."""
        return self._begin(work).result(TEST_TIMEOUT)

    def begin(self, lock: Any, method: str, *args: Any) -> Future[Any]:
        return self._begin(lambda: getattr(lock, f"a{method}")(*args))

    def do(self, lock: Any, method: str, *args: Any) -> Any:
        return self.begin(lock, method, *args).result(TEST_TIMEOUT)

    def see(self, lock: Any, attribute: str) -> Any:
        async def look() -> Any:
            return _look(lock, attribute)

        return self.run(look)

    def close(self) -> None:
        self._loop.call(self._jobs.put_nowait, None)
        self._life.result(TEST_TIMEOUT)


def _look(lock: Any, attribute: str) -> Any:
    found = getattr(lock, attribute)
    return found() if callable(found) else found


Actor = InThread | InTask


class Actors:
    """Creates threads or tasks that share one backend. ``kind``: their class, `InThread` or `InTask`."""

    def __init__(self, kind: type[InThread | InTask], backend: Any) -> None:
        self.backend = backend
        self._loop = EventLoop()
        self._make = partial(kind, self._loop)
        self._all: list[Actor] = []

    def __call__(self) -> Actor:
        """Return a new `InThread` or `InTask`."""
        person = self._make()
        self._all.append(person)
        return person

    def close(self) -> None:
        for person in self._all:
            person.close()
        self._loop.run(self.backend.aclose())
        self._loop.close()
        self.backend.close()
