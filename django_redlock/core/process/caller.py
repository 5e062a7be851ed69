"""The caller: the current asyncio task or, without a running event loop, the current thread."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"
running_loop = asyncio._get_running_loop  # unlike the public function it returns `None` when no loop runs


def check_may_block(what: str, instead: str) -> None:
    """Raise ``RuntimeError`` if an event loop runs, which ``what`` would block. ``instead``: what to use there.

    With DJANGO_ALLOW_ASYNC_UNSAFE it may block the loop, as Django's ORM may: notebooks and Playwright run synchronous
    code while a loop runs.
    """
    if running_loop() is not None and not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        raise RuntimeError(
            f"{what} would block the event loop; in a coroutine use {instead} "
            "(in a notebook or a browser test, set the environment variable DJANGO_ALLOW_ASYNC_UNSAFE)"
        )


def running_task() -> asyncio.Task[Any] | None:
    """Return the current asyncio task. Returns ``None`` outside of an event loop and in callbacks of the loop."""
    return asyncio.current_task() if running_loop() is not None else None


class _Mark:
    """Represents a thread. Only the thread's locals have a strong reference, so the object ends with the thread."""

    __slots__ = ("__weakref__",)


_thread = threading.local()
Caller = weakref.ref[_Mark] | weakref.ref[asyncio.Task[Any]]


def calling() -> Caller:
    """Return a weak reference that identifies the current task or thread.

    The reference never equals that of another task or thread, even after the current one has ended.
    """
    task = running_task()
    if task is not None:
        return weakref.ref(task)
    # setdefault() is atomic: a signal handler may call this function, too.
    return weakref.ref(_thread.__dict__.get("mark") or _thread.__dict__.setdefault("mark", _Mark()))


def task_is_ours() -> bool:
    """Return whether the current task runs only a coroutine of this package, for another task that waits for it.

    `asyncio.gather` creates such a task for ``lock.aacquire()``, and so does `asyncio.wait_for` up to Python 3.11.
    """
    task = running_task()
    code = getattr(task.get_coro(), "cr_code", None) if task is not None else None
    return code is not None and code.co_filename.startswith(_PACKAGE)


def has_ended(caller: Caller) -> bool:
    """Return whether the thread or task of ``caller``, a result of `calling`, has ended."""
    alive = caller()
    return alive is None or (isinstance(alive, asyncio.Task) and alive.done())


class WakeEvent:
    """A one-shot event that wakes the thread or task that created the event."""

    __slots__ = ("_event", "_lock", "_loop")

    def __init__(self) -> None:
        self._loop = running_loop()
        self._event = asyncio.Event()
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread or task. May be called from any thread, and repeatedly."""
        with suppress(RuntimeError):  # set already: a waiter for several stripes is woken by each of them
            self._lock.release()
        if self._loop is running_loop():
            self._event.set()
        elif self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and its tasks with it
                self._loop.call_soon_threadsafe(self._event.set)

    def wait(self, seconds: float) -> None:
        """Block until the event is set, for at most ``seconds``.

        Raises ``RuntimeError`` in a coroutine, because the event loop may have to set the event.
        """
        check_may_block("this", "the twin for asyncio, such as aextend()")
        self._lock.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))

    async def wait_async(self, seconds: float) -> None:
        """`wait` for asyncio."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
