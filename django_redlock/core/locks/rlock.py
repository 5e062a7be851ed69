"""Reentrant locks, which their holder may acquire several times: `RLock`, and the two sides of a `RWLock`."""

from __future__ import annotations

import itertools
import os
from typing import Any
from weakref import WeakKeyDictionary

from ...errors import LockLost, LockNotHeld
from ..flow.requests import Flow
from ..process.caller import calling, has_ended
from ..values import Claim, Refusal
from .handle import Ask
from .hold import End, Hold
from .lock import Lock

_origin = os.urandom(8).hex()  # of this process and its forks, which have other process ids
_next_number = itertools.count(1)
_numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of threads and tasks; never used twice, unlike `id()`


def current_holder() -> bytes:
    """Return an identifier of the current thread or task that is unique among all processes."""
    me = calling()()
    number = _numbers.get(me) or _numbers.setdefault(me, next(_next_number))
    return f"{_origin}:{os.getpid()}:{number}".encode()


class ReentrantHold(Hold):
    """A hold that only its own thread or task can release. Renewal ends with this thread or task."""

    def _is_renewable(self) -> bool:
        return not has_ended(self.acquired_by) and super()._is_renewable()

    def mark_lost(self, reason: str) -> None:
        super().mark_lost(reason)
        if has_ended(self.acquired_by):
            self.end(End.LOST)


class RLock(Lock):
    """A lock with the interface of ``threading.RLock``: the thread or asyncio task that holds it may acquire it again.

    Created by ``backend.rlock(name, …)``. A further acquire through the same handle sends no request. An acquire
    through another handle adds a share with a separate lease. The lock is free when all shares are released. Only the
    thread or task that holds the lock can release it: any other thread or task gets ``LockNotHeld``. If a thread or
    task ends without a release, its lease ends with its ttl.
    """

    hold_type = ReentrantHold
    several = True  # one hold for each thread or task

    def new_claim(self) -> Claim:
        return super().new_claim()._replace(holder=current_holder())

    def acquire_flow(self, wait: float, claim: Claim | None = None, ask: Ask | None = None) -> Flow[Hold | Refusal]:
        own = self._latest_of(calling())
        if own is None:
            return (yield from super().acquire_flow(wait, claim, ask))
        own.check()
        own.level += 1
        return own

    def release_flow(self, hold: Hold | None = None) -> Flow[None]:
        own = hold or self._latest_of(calling()) or self.required_hold()
        if own.active and own.acquired_by != calling():
            raise LockNotHeld(self.name, "is held by another thread or task through this handle")
        if own.level == 1 or not own.active:
            yield from super().release_flow(own)
            return
        own.level -= 1
        if own.lost:
            raise LockLost(self.name)

    # ── for `threading.Condition` ────────────────────────────────────────────────────────────

    def _is_owned(self) -> bool:
        return self._latest_of(calling()) is not None

    def _recursion_count(self) -> int:
        own = self._latest_of(calling())
        return own.level if own else 0

    def _release_save(self) -> int:
        own = self._latest_of(calling())
        level = 0 if own is None else own.level
        if own is not None:
            own.level = 1
        self.release()
        return level

    def _acquire_restore(self, level: int) -> None:
        self.acquire()
        own = self._latest_of(calling())
        if own is not None:
            own.level = level


class RWLockSide(RLock):
    """One side of a `RWLock`: a reentrant lock that many threads and tasks may hold at once, each with its own lease.

    ``token``, ``remaining``, ``lost`` and so on describe the lease of the calling thread or task only.
    """

    @property
    def hold(self) -> Hold | None:
        """The latest hold of the calling thread or task; ``None`` if it has acquired nothing."""
        me = calling()
        own = [hold for hold in self._holds if hold.acquired_by == me]
        return self._latest_of(me) or (own[-1] if own else None)


class RWLock:
    """A pair of locks with one name: many holders of `read`, each with its own lease, or one holder of `write`.

    Created by ``backend.rwlock(name, …)``. Threads and tasks may share the handle. Grants are in order of arrival, so
    neither readers nor writers starve. The writer may also acquire `read`, and keep `read` after the release of
    `write`. A reader that tries to acquire `write` gets a ``LockError`` at once.
    """

    def __init__(self, read: RWLockSide, write: RWLockSide) -> None:
        self.name = read.name
        self.read = read
        self.write = write

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} object name={self.name!r} at {id(self):#x}>"
