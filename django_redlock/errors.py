"""What can go wrong with a lock, by what the caller can do about it.

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
    """Base of all errors of this package. ``name`` is the lock's, ``""`` where it is about none in particular.

    ``reason`` is the rest of the sentence.
    """

    reason = "failed"

    def __init__(self, name: str, reason: str | None = None) -> None:
        super().__init__(name)  # one argument: OSError, a parent of some, would take two for errno and strerror
        self.name = name
        if reason is not None:
            self.reason = reason

    def __str__(self) -> str:
        return f"lock {self.name!r}: {self.reason}" if self.name else self.reason

    def __reduce__(self) -> tuple[Any, ...]:
        # The builtin parents (OSError above all) have constructors of their own; rebuild from our arguments alone.
        return type(self), (self.name,), self.__dict__


class LockNotAcquired(LockError, TimeoutError):
    """Another holder has the lock, and it did not become free within the time that the caller was ready to wait.

    ``retry_after``: seconds until the lease in the way ends, unless it is renewed (``None``: unknown). ``holder``: who
    held it at the last look (``""``: unknown).
    """

    reason = "is held by another"

    def __init__(
        self, name: str, reason: str | None = None, retry_after: float | None = None, holder: str = ""
    ) -> None:
        super().__init__(name, reason)
        self.retry_after = retry_after
        self.holder = holder


class LockLost(LockError):
    """The lease ran out, was force-released or was taken over while this handle believed to hold the lock.

    Whatever the lock protects may already be in another's hands: stop, and don't write.
    """

    reason = "the lease was lost"


class StaleLock(LockLost):
    """A write was refused: the lock it was made under was lost, or the row has been written under a later one.

    Nothing was written. ``token``: the fencing token of the refused write; ``fence``: the one in the row (``None``:
    unknown, or there is no row).
    """

    reason = "is no longer the latest: the write was refused"

    def __init__(
        self, name: str, reason: str | None = None, token: int | None = None, fence: int | None = None
    ) -> None:
        super().__init__(name, reason)
        self.token = token
        self.fence = fence


class LockDeadlock(LockError, RuntimeError):
    """This thread or task holds the lock through another handle, and would wait for itself without an end."""

    reason = (
        "is held by this thread or task through another handle, and would never be released while this one waits: "
        "use rlock(), release it first, or wait with a limit of time"
    )


class LockNotHeld(LockError, RuntimeError):
    """This handle holds nothing: it never acquired, has released already, or belongs to the parent of a fork."""

    reason = "is not held by this handle"


class PermitNotHeld(LockNotHeld, ValueError):
    """A semaphore was released more often than acquired: a ``ValueError``, as from `threading.BoundedSemaphore`."""

    reason = "was released more often than acquired"


class LockUnavailable(LockError, ConnectionError):
    """The store could not be asked: unreachable, hung, read-only, out of memory, or it wants a password.

    Says nothing about who holds the lock. ``errors`` maps each node to what went wrong there.
    """

    reason = "the store can't be asked"

    def __init__(self, name: str, reason: str | None = None, errors: Mapping[str, BaseException] | None = None) -> None:
        super().__init__(name, reason)
        self.errors = dict(errors or {})


class LockNotSupported(LockError, NotImplementedError):
    """This backend can't do that soundly, and so doesn't do it."""

    reason = "is not supported by this backend"
