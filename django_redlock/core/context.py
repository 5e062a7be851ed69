"""The current thread, or within an event loop the current task."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

running_loop = asyncio._get_running_loop  # unlike the public function it returns `None` when no loop runs


def running_task() -> asyncio.Task[Any] | None:
    """The current task; ``None`` outside of an event loop, and in its callbacks."""
    return asyncio.current_task() if running_loop() is not None else None


def caller() -> int:
    """The number of the current thread or task. It may be used again after the thread or task has ended."""
    task = running_task()
    return threading.get_ident() if task is None else id(task)


_thread = threading.local()


def calling() -> object:
    """An object for the current thread or task that equals no other, also after the thread or task has ended."""
    task = running_task()
    # Atomic, because a signal handler may call this, too.
    return _thread.__dict__.setdefault("mark", object()) if task is None else weakref.ref(task)
