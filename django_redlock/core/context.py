"""Who is calling: a thread, or within an event loop a task."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

running_loop = asyncio._get_running_loop  # `None` where there is none; the public one would raise


def running_task() -> asyncio.Task[Any] | None:
    """The task that is running; ``None`` outside of an event loop, and in its callbacks."""
    return asyncio.current_task() if running_loop() is not None else None


def caller() -> int:
    """The thread, or within an event loop the task, that is running."""
    task = running_task()
    return threading.get_ident() if task is None else id(task)


_thread = threading.local()


def calling() -> object:
    """The thread, or within an event loop the task, that is running: equal to no other, also after it has ended."""
    task = running_task()
    # One step: the handler of a signal may ask, too.
    return _thread.__dict__.setdefault("mark", object()) if task is None else weakref.ref(task)
