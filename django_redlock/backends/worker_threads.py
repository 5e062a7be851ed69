"""Threads for the blocking calls of one backend under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from ..core import fork

T = TypeVar("T")
THREADS = 32  # at most; as many as asyncio's own


class WorkerThreads:
    """A backend's own executor: a store that hangs doesn't keep the threads of ``asyncio.to_thread`` busy.

    Its threads are started when they are needed, and end with the backend.
    """

    def __init__(self, name: str) -> None:
        self._name = f"redlock-{name}"
        self._executor: ThreadPoolExecutor | None = None
        fork.on_fork(self._begin)

    def _begin(self) -> None:
        self._executor = None  # its threads are the parent's

    async def run(self, function: Callable[[], T], undo: Callable[[], Any] | None = None) -> T:
        """What ``function`` returns.

        A caller that is cancelled doesn't wait for it. ``undo`` is called when it has ended: before that the thread may
        take what has been undone.
        """
        future = self._started().submit(copy_context().run, function)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if undo is not None:
                future.add_done_callback(lambda _: undo())
            raise

    def close(self) -> None:
        """End the threads that are idle, and the others after their calls. They are started again when needed."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)

    def _started(self) -> ThreadPoolExecutor:
        executor = self._executor
        if executor is None:
            executor = self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix=self._name)
        return executor
