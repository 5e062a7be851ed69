"""The fencing token of a held lock, in the form in which it is stored in a database row."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..errors import LockLost, LockNotHeld, StaleLock

FIELD = "fence"  # the column's name
FencingLock = Lock | Hold
WITHOUT: Any = object()  # a write without a lock. `None` is refused, because it is probably a mistake


class FencingToken(NamedTuple):
    """A fencing token, and the lock that it belongs to."""

    name: str  # of the lock, for errors; "" if only the token is known
    token: int

    def refusal(self, row: str, found: int | None) -> StaleLock:
        """Return the ``StaleLock`` for a refused write. ``row``: a description of the row, for the message.

        ``found``: the fencing token that is stored in the row; ``None`` if the row has been deleted.
        """
        if found is None:
            return StaleLock(self.name, f"{row} has been deleted since it was read", self.token)
        reason = f"{row} has been written under fencing token {found}, after this token ({self.token})"
        return StaleLock(self.name, reason, self.token, found)


def handle_of(lock: Any) -> Any:
    """Return the hold of the calling thread or task if ``lock`` can have several holds, otherwise ``lock`` itself.

    If the work moves to another thread, this function must be called before the move.
    """
    return (lock.hold or lock) if isinstance(lock, Lock) and lock.several else lock


def bound(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return ``kwargs`` with the argument ``lock``, if there is one, replaced by the result of `handle_of`."""
    return {**kwargs, "lock": handle_of(kwargs["lock"])} if "lock" in kwargs else kwargs


def fencing_token_of(lock: Any) -> FencingToken:
    """Return the fencing token of a held lock. ``lock`` may also be a bare token, received from the holder.

    Raises ``LockNotHeld`` when the lock is not held, ``StaleLock`` (a kind of ``LockLost``) when the lock has been
    lost, ``TypeError`` when ``lock`` is not a lock with a fencing token.
    """
    if type(lock) is int:
        return FencingToken("", lock)
    if lock is None:
        raise LockNotHeld("", "lock=None is not a lock: to write without a lock, leave the argument out")
    check = getattr(lock, "check", None)
    if check is None:
        raise TypeError(f"lock must be a held lock or a fencing token, not {lock!r}")
    try:
        check()
    except StaleLock:
        raise
    except LockLost as error:
        raise StaleLock(error.name, "was lost before the write") from error
    token = lock.fencing_token
    if token is None:
        check()  # another thread may have released the lock since
        raise TypeError(f"{lock!r} has no fencing token: make the lock with fencing=True")
    if type(token) is not int:
        raise TypeError(f"{lock!r} has no single fencing token: give one of the locks that it consists of")
    return FencingToken(lock.name, token)
