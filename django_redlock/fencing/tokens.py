"""From a lock that is held to the number that goes into the row."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ..core.locks.read_write import RWLockSide
from ..errors import LockLost, LockNotHeld, StaleLock

FIELD = "fence"  # the column's name


class FencingLock(Protocol):
    """What a lock has to say of itself: any handle of this package does, and so does ``request.lock``."""

    name: str

    @property
    def fencing_token(self) -> int | None: ...

    def check(self) -> None: ...


class FencingToken(NamedTuple):
    """Under which lock is written: its name (``""``: nobody has said), for errors, and its number."""

    name: str
    token: int

    def refusal(self, row: str, found: int | None) -> StaleLock:
        """The error for a write that came too late; ``found`` is the token in the row, ``None``: there is no row."""
        if found is None:
            return StaleLock(self.name, f"{row} has been deleted since it was read", self.token)
        reason = f"{row} has been written under fencing token {found}, after ours ({self.token})"
        return StaleLock(self.name, reason, self.token, found)


class _Without:
    """Stands for a ``lock`` that was left out. ``None`` would not do: it is what a forgotten lock looks like."""

    def __repr__(self) -> str:
        return "<no lock>"


WITHOUT: Any = _Without()


def handle_of(lock: Any) -> Any:
    """The handle that the caller holds ``lock`` through, before the work goes to another thread.

    A side of a read-write lock is another lock for each thread and task.
    """
    return lock.own_handle() if isinstance(lock, RWLockSide) else lock


def bound(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a method, with the handle in place of its ``lock``, if it has one."""
    return {**kwargs, "lock": handle_of(kwargs["lock"])} if "lock" in kwargs else kwargs


def fencing_token_of(lock: FencingLock | int) -> FencingToken:
    """The fence of a lock that is held, or of a bare token that another process was handed by the holder.

    Raises ``LockNotHeld`` when nothing is held, ``StaleLock`` when the lock has been lost, ``TypeError`` for what is no
    lock with a fencing token.
    """
    if type(lock) is int:
        return FencingToken("", lock)
    if lock is None:
        raise LockNotHeld("", "lock=None is no lock (to write without one, leave it out)")
    check = getattr(lock, "check", None)
    if check is None:
        raise TypeError(f"lock is a lock that is held, or a fencing token, not {lock!r}")
    try:
        check()
    except StaleLock:
        raise
    except LockLost as error:
        raise StaleLock(error.name, "was lost before the write") from error
    token = lock.fencing_token  # type: ignore[union-attr]
    if token is None:  # released by another thread, between the two
        raise LockNotHeld(lock.name)  # type: ignore[union-attr]
    if type(token) is not int:
        raise TypeError(f"{lock!r} has no single fencing token: give one of the locks that it consists of")
    return FencingToken(lock.name, token)  # type: ignore[union-attr]
