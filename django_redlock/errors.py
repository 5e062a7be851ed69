"""The errors of locks, by what the caller can do about them.

LockError
├── LockNotAcquired    another holder has the lock          → skip, retry, answer 409   (also TimeoutError)
├── LockLost           the lease has ended too early        → stop the work
│   └── StaleLock      a write under an old fencing token   → stop the work; the write was refused
├── LockDeadlock       the caller would wait for itself     → use rlock(), or release   (also RuntimeError)
├── LockNotHeld        released or extended, but not held   → a bug in the caller       (also RuntimeError)
│   └── PermitNotHeld  more permits released than acquired  → a bug in the caller       (also ValueError)
├── LockUnavailable    the store does not serve             → alert, answer 503         (also ConnectionError)
└── LockNotSupported   this backend can't do that           → choose another backend    (also NotImplementedError)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "LockDeadlock",
    "LockError",
    "LockLost",
    "LockNotAcquired",
    "LockNotHeld",
    "LockNotSupported",
    "LockUnavailable",
    "PermitNotHeld",
    "StaleLock",
]


class LockError(Exception):
    """Base class of all errors of this package.

    ``name``: the name of the lock; ``""`` if the error is not about one lock. ``reason``: the message without the name.
    """

    reason = "failed"

    def __init__(self, name: str = "", reason: str | None = None) -> None:
        super().__init__(name)  # one argument: OSError, a base of some errors, would take two as errno and strerror
        self.name = name
        if reason is not None:
            self.reason = reason

    def __str__(self) -> str:
        return f"lock {self.name!r}: {self.reason}" if self.name else self.reason

    def __reduce__(self) -> tuple[Any, ...]:
        # Built-in bases such as OSError have constructors of their own. This rebuilds the error from `name` only.
        return type(self), (self.name,), self.__dict__


class LockNotAcquired(LockError, TimeoutError):
    """Another holder has the lock, and the lock did not become free within the caller's timeout.

    ``retry_after``: seconds until the holder's lease ends unless it is renewed; ``None``: unknown. ``holder``: the last
    known holder as an `Owner`, or the id of a task; ``None``: unknown.
    """

    reason = "is held by another holder"

    def __init__(
        self, name: str = "", reason: str | None = None, retry_after: float | None = None, holder: Any = None
    ) -> None:
        super().__init__(name, reason)
        self.retry_after = retry_after
        self.holder = holder


class LockLost(LockError):
    """The lease ended before this handle released it: it expired, was released by force, or the store lost its data.

    Another holder may already change the protected data, so the work must stop without further writes.
    """

    reason = "the lease was lost, and another process may hold the lock now"


class StaleLock(LockLost):
    """A write was refused: its lock was lost, or the row has been written under a larger fencing token.

    Nothing was written. ``token``: the fencing token of the refused write. ``fence``: the fencing token in the row;
    ``None``: unknown, or the row does not exist.
    """

    reason = "was lost, or has had a later holder: the write was refused"

    def __init__(
        self, name: str = "", reason: str | None = None, token: int | None = None, fence: int | None = None
    ) -> None:
        super().__init__(name, reason)
        self.token = token
        self.fence = fence


class LockDeadlock(LockError, RuntimeError):
    """This thread or task holds the lock through another handle, and would wait for itself without a time limit."""

    reason = (
        "is held by this thread or task through another handle, and the wait would never end unless another thread or "
        "task releases it: use rlock(), release it first, or wait with a timeout"
    )


class LockNotHeld(LockError, RuntimeError):
    """This handle holds nothing: it never acquired, has already released, or acquired in the parent of a fork."""

    reason = "is not held by this handle"


class PermitNotHeld(LockNotHeld, ValueError):
    """More permits were released than acquired. Also a ``ValueError``, as `threading.BoundedSemaphore` raises."""

    reason = "was released more often than acquired"


class LockUnavailable(LockError, ConnectionError):
    """The store can't be used: it is down, hangs, is read-only or out of memory, or requires a password.

    The lock may be free or held. ``errors``: the error of each node that failed, by the name of the node.
    ``unconfirmed``: whether a request may have been carried out although its reply was lost. A lock that was granted in
    this way is released in the background.
    """

    reason = "the store is unavailable"

    def __init__(
        self, name: str = "", reason: str | None = None, errors: Mapping[str, BaseException] | None = None
    ) -> None:
        super().__init__(name, reason)
        self.errors = dict(errors or {})
        self.unconfirmed = False


class LockNotSupported(LockError, NotImplementedError):
    """This backend can't do the operation safely, and refuses it."""

    reason = "is not supported by this backend"
