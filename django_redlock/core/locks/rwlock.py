"""The read-write lock: many readers or one writer. Each thread or asyncio task has its own lease."""

from __future__ import annotations

from ..process.caller import calling
from .hold import Hold
from .rlock import RLock


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
