"""The read-write lock: many read at once, or one writes; each thread or asyncio task for itself."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from ..context import running_task
from .forwarding import forward_members
from .reentrant import CONDITION_HOOKS, RLock

if TYPE_CHECKING:
    _Members = RLock
else:
    _Members = object


class RWLockSide(_Members):
    """One side of a `RWLock`: has the members of a lock, and is another lock for each thread or asyncio task.

    What it holds and says (``token``, ``remaining``, ``lost``, …) is that of the thread or task which asks. It may take
    it again, and then has to release it as often. When it ends without that, its lease ends by itself.
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
        if (task := running_task()) is not None:
            return self._tasks.get(task) or self._tasks.setdefault(task, self._new_handle())
        mine: RLock | None = getattr(self._threads, "lock", None)
        if mine is None:
            mine = self._threads.lock = self._new_handle()
        return mine

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
    """A pair of locks of one name: many may hold `read` at once, each with a lease of its own, or one holds `write`.

    Made by ``backend.rwlock(name, …)``; threads and tasks may share it. Each gets its turn as it came, so that neither
    readers nor writers starve. Who writes may also read, and then go on reading when it has released `write`. Who
    reads can't begin to write: ``LockError``, at once.
    """

    def __init__(self, read: RLock, write: RLock) -> None:
        self.name = read.name
        self.read = RWLockSide(read)
        self.write = RWLockSide(write)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} object name={self.name!r} at {id(self):#x}>"
