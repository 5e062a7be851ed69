"""The read-write lock: many readers or one writer. Each thread or asyncio task has its own lease."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from ..process.caller import running_task
from .forwarding import forward_members
from .reentrant import CONDITION_HOOKS, RLock

if TYPE_CHECKING:
    _Members = RLock
else:
    _Members = object


class RWLockSide(_Members):
    """One side of a `RWLock`: an `RLock` for each thread or asyncio task. It has the members of a `Lock`.

    ``token``, ``remaining``, ``lost`` and so on describe the lease of the calling thread or task. A thread or task may
    acquire the side several times, and must release it once for each acquire. If a thread or task ends without a
    release, its lease ends with its ttl. ``model``: a handle that is never acquired. The handle of each thread or task
    is made like the model.
    """

    def __init__(self, model: RLock) -> None:
        self.name = model.name
        self._model = model
        self._threads = threading.local()
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], RLock] = WeakKeyDictionary()

    def _new_handle(self) -> RLock:
        model = self._model
        return RLock(model.store, model.primitive, model.name, model.keys, model.options)

    def own_handle(self) -> RLock:
        """Return the lock of the calling thread or task."""
        if (task := running_task()) is not None:
            return self._tasks.get(task) or self._tasks.setdefault(task, self._new_handle())
        handle: RLock | None = getattr(self._threads, "lock", None)
        if handle is None:
            handle = self._threads.lock = self._new_handle()
        return handle

    def __enter__(self) -> Self:
        self.own_handle().__enter__()
        return self

    async def __aenter__(self) -> Self:
        await self.own_handle().__aenter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.own_handle().__exit__(kind, error, tb)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.own_handle().__aexit__(kind, error, tb)

    def __repr__(self) -> str:
        return repr(self.own_handle())


forward_members(RWLockSide, RLock, CONDITION_HOOKS)


class RWLock:
    """A pair of locks with one name: many holders of `read`, each with its own lease, or one holder of `write`.

    Created by ``backend.rwlock(name, …)``. Threads and tasks may share the handle. Grants are in order of arrival, so
    neither readers nor writers starve. The writer may also acquire `read`, and keep `read` after the release of
    `write`. A reader that tries to acquire `write` gets a ``LockError`` at once.
    """

    def __init__(self, read: RLock, write: RLock) -> None:
        self.name = read.name
        self.read = RWLockSide(read)
        self.write = RWLockSide(write)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} object name={self.name!r} at {id(self):#x}>"
