"""The reentrant lock: its holder may acquire it several times, and must release it once for each acquire."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from typing import Any
from weakref import WeakKeyDictionary

from ...errors import LockLost, LockNotHeld
from ..flow.requests import Flow
from ..process.caller import running_task
from ..process.fork import on_fork
from ..values import Claim, Lease, Refusal
from .lock import Lock

# The methods that `threading.Condition` uses of a reentrant lock.
CONDITION_HOOKS = {"_is_owned", "_release_save", "_acquire_restore", "_at_fork_reinit"}

# Numbers of threads and tasks that are never used twice, unlike `threading.get_ident()` and `id()`.
_numbers = itertools.count(1)
_process = os.urandom(8).hex()
_thread = threading.local()
_tasks: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()


@on_fork
def _begin() -> None:
    global _process  # noqa: PLW0603  (only between processes)
    _process = os.urandom(8).hex()


def current_holder() -> bytes:
    """Return an identifier of the current thread or task that is unique among all processes."""
    if (task := running_task()) is not None:
        number = _tasks.get(task) or _tasks.setdefault(task, next(_numbers))
    else:
        number = getattr(_thread, "number", 0)
        if not number:
            number = _thread.number = next(_numbers)
    return f"{_process}:{os.getpid()}:{number}".encode()


class RLock(Lock):
    """A lock with the interface of ``threading.RLock``: the thread or asyncio task that holds it may acquire it again.

    Created by ``backend.rlock(name, …)``. A further acquire through the same handle sends no request. An acquire
    through another handle adds a share with a separate lease. The lock is free when all shares are released. Only the
    thread or task that holds the lock can release it: any other thread or task gets ``LockNotHeld``.
    """

    _level = 0

    def new_claim(self) -> Claim:
        return super().new_claim()._replace(payload=current_holder())

    def _is_owned(self) -> bool:
        lease = self.current_lease()
        return lease is not None and lease.claim.payload == current_holder()

    def acquire_flow(self, wait: float) -> Flow[Lease | Refusal]:
        lease = self.current_lease()
        if lease is None or lease.claim.payload != current_holder():
            return (yield from super().acquire_flow(wait))
        self.check()
        self._level += 1
        return lease

    def on_granted(self, lease: Lease) -> None:
        self._level = 1  # before other threads can see the lease
        super().on_granted(lease)

    def release_flow(self, token: bytes | None = None) -> Flow[None]:
        lease = self._require_lease()
        if token not in (None, lease.claim.token):
            raise LockLost(self.name)
        if lease.claim.payload != current_holder():
            raise LockNotHeld(self.name, "is held by another thread or task through this handle")
        if self._level == 1:
            yield from super().release_flow(token)
            return
        self._level -= 1
        if self.lost:
            raise LockLost(self.name)

    # ── for conditions ───────────────────────────────────────────────────────────────────────

    def _recursion_count(self) -> int:
        return self._level if self._is_owned() else 0

    def _release_save(self) -> int:
        level = self._recursion_count()
        if level:
            self._level = 1
        self.release()
        return level

    def _acquire_restore(self, level: int) -> None:
        self.acquire()
        self._level = level
