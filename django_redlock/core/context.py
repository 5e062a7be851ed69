"""The current thread, or within an event loop the current task."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

running_loop = asyncio._get_running_loop  # `None` where there is none; the public one would raise


def running_task() -> asyncio.Task[Any] | None:
    """The running task; ``None`` outside of an event loop and in its callbacks."""
    return asyncio.current_task() if running_loop() is not None else None


def caller() -> int:
    """The id of the running thread, or within an event loop of the running task."""
    task = running_task()
    return threading.get_ident() if task is None else id(task)


_thread = threading.local()


def calling() -> object:
    """A mark of the running thread or task that equals no other, even after its end. Ids are used again."""
    task = running_task()
    # One step: the handler of a signal may ask, too.
    return _thread.__dict__.setdefault("mark", object()) if task is None else weakref.ref(task)
