"""Threads for the blocking calls of one backend under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from ..core.process import fork

T = TypeVar("T")
THREADS = 32  # the maximum number of threads, the same as in asyncio's default executor


class WorkerThreads:
    """The thread pool of one backend. If the store hangs, it blocks these threads, not those of ``asyncio.to_thread``.

    The threads are started on demand, and end with the backend. ``name`` appears in their names.
    """

    def __init__(self, name: str) -> None:
        self._name = f"redlock-{name}"
        self._executor: ThreadPoolExecutor | None = None
        fork.on_fork(self._begin)

    def _begin(self) -> None:
        self._executor = None  # the threads belong to the parent process

    async def run(self, function: Callable[[], T], undo: Callable[[], Any] | None = None) -> T:
        """Call ``function`` in a thread, and return its result.

        If the task is cancelled, the task does not wait for ``function``, which may still acquire the lock. In this
        case ``undo`` is called after ``function`` has ended.
        """
        if (executor := self._executor) is None:
            executor = self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix=self._name)
        future = executor.submit(copy_context().run, function)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if undo is not None:
                future.add_done_callback(lambda _: undo())
            raise

    def close(self) -> None:
        """End idle threads now, and busy threads after their calls. The next call starts new threads."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)
