"""Locks and database transactions: a lock that is given back before its transaction commits protects nothing.

The next holder reads what the first has not committed yet. So a `CommitLock` that is released within a transaction is
kept until that has ended, by commit or by rollback, and the transaction commits only while the lease lasts.
"""

from __future__ import annotations

import logging
import sys
import threading
from functools import wraps
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from .core.events import Event
from .core.flow.requests import Flow
from .core.locks.lock import Lock
from .core.values import Lease, Refusal
from .errors import LockError, LockLost

logger = logging.getLogger("django_redlock.transactions")

# The methods of a connection with which a transaction can end, and what undoes it in place of the two that keep it.
_ENDS = ("commit", "savepoint_commit", "rollback", "savepoint_rollback", "set_autocommit", "close")
_UNDO = {"commit": "rollback", "savepoint_commit": "savepoint_rollback"}
_ATTRIBUTE = "_redlock_kept"


def in_atomic(connection: BaseDatabaseWrapper) -> bool:
    """Whether an ``atomic()`` block is open, other than those that ``TestCase`` puts around every test."""
    if not connection.in_atomic_block or connection.closed_in_transaction:
        return False
    blocks: list[Any] = connection.atomic_blocks
    # In a TestCase nothing tells of the end of a block without a savepoint.
    return not blocks or any(not block._from_testcase and (block.savepoint or block is blocks[0]) for block in blocks)


def in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """The same, or autocommit is off. Never opens a connection."""
    if connection.in_atomic_block:
        return in_atomic(connection)
    return connection.connection is not None and not connection.autocommit


class DeferredRelease(Lock):
    """Holds what a `CommitLock` has released until the transaction has ended."""


class CommitLock(Lock):
    """A lock that is kept until the transaction in which it is released has ended; outside one, an ordinary lock.

    Taken again within the same transaction, it is had at once: this transaction has it still.
    """

    @classmethod
    def like(cls, other: Lock, database: str) -> CommitLock:
        """The same lock, bound to the transactions of the database alias ``database``."""
        made = cls(other.store, other.primitive, other.name, other.keys, other.options)
        made._database = database
        connections[database]  # an unknown alias is an error here, not when the lock is released
        return made

    _database: str

    def acquire_flow(self, wait: float) -> Flow[Lease | Refusal]:
        kept: TransactionLocks | None = vars(connections[self._database]).get(_ATTRIBUTE)
        keeper = kept.keeper_of(self) if kept else None
        if kept is None or keeper is None:
            return (yield from super().acquire_flow(wait))
        lease = yield from keeper.hand_over_flow()
        self.on_granted(lease)
        kept.replace(keeper, self)
        return lease

    def release_flow(self, token: bytes | None = None) -> Flow[None]:
        connection = connections[self._database]
        if self.lost or not in_transaction(connection):
            yield from super().release_flow(token)
            return
        lease = yield from self.hand_over_flow(token)
        keeper = DeferredRelease(self.store, self.primitive, self.name, self.keys, self.options)
        keeper.on_granted(lease)
        (vars(connection).get(_ATTRIBUTE) or TransactionLocks(connection)).replace(self, keeper)


class TransactionLocks:
    """The locks that one open transaction keeps, or has kept and taken again.

    Django tells of a commit, but not of a rollback. So the methods that end a transaction are watched on this one
    connection, from the first lock that is kept until the end of the transaction.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.locks: list[Lock] = []
        self._connection = connection
        self._watched = {name: self._watch(name) for name in _ENDS}
        vars(connection).update(self._watched, **{_ATTRIBUTE: self})

    def keeper_of(self, handle: Lock) -> DeferredRelease | None:
        """What keeps the lock that ``handle`` is of. Raises ``LockLost`` if this transaction has lost it."""
        for lock in self.locks:
            if (lock.name, lock.store, lock.primitive) == (handle.name, handle.store, handle.primitive):
                if lock.lost:  # it stays here: what was written under it must not be committed
                    raise LockLost(lock.name)
                if isinstance(lock, DeferredRelease):
                    return lock
        return None

    def replace(self, before: Lock, after: Lock) -> None:
        """``after`` has the lock that ``before`` had."""
        self.locks = [lock for lock in self.locks if lock is not before] + [after]

    def _watch(self, name: str) -> Any:
        method = getattr(self._connection, name)

        @wraps(method)
        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                if name in _UNDO and self._is_over(name):
                    self._check(name, args)
                return method(*args, **kwargs)
            finally:
                if self._is_over(name):
                    self._end()

        return watched

    def _is_over(self, name: str) -> bool:
        # Within commit() and rollback() Django has not switched autocommit on again.
        busy = in_atomic if name in ("commit", "rollback") else in_transaction
        return not busy(self._connection)

    def _check(self, name: str, args: tuple[Any, ...]) -> None:
        """Another may hold what this transaction wrote under: roll back instead of committing."""
        for lock in self.locks:
            if lock.lost and lock.options.on_lost == "raise":
                getattr(self._connection, _UNDO[name])(*args)
                raise LockLost(lock.name, "the lease was lost before the transaction could be committed")

    def _end(self) -> None:
        attributes = vars(self._connection)
        for name, watched in self._watched.items():
            if attributes.get(name) is watched:
                del attributes[name]
        if attributes.get(_ATTRIBUTE) is self:
            del attributes[_ATTRIBUTE]
        while self.locks:
            lock = self.locks.pop(0)
            try:
                if isinstance(lock, DeferredRelease):
                    lock.release()
            except LockError as error:
                logger.warning("%s (after the end of the transaction that kept it)", error)


# ── locks that are released too early ────────────────────────────────────────────────────────

_places: set[tuple[str, int]] = set()


class _Opened(threading.local):
    """The connections that were opened in this thread: `django.db.connections` takes microseconds to say so."""

    def __init__(self) -> None:
        # The thread that imports this may have none, and no settings either: they are not read before they are needed.
        opened = connections.all(initialized_only=True) if settings.configured else ()
        self.connections: tuple[BaseDatabaseWrapper, ...] = tuple(opened)


_opened = _Opened()


def _watch_connection(*, connection: BaseDatabaseWrapper, **_kwargs: Any) -> None:
    others = (each for each in _opened.connections if each.alias != connection.alias)
    _opened.connections = (*others, connection)


connection_created.connect(_watch_connection, dispatch_uid="django_redlock.transactions")


def warn_of_early_release(event: Event) -> None:
    """Log, once for each place in the code, that a lock was released while a transaction of this thread was open."""
    for connection in _opened.connections:
        if connection.in_atomic_block:
            break
    else:
        return
    if isinstance(event.lock, CommitLock | DeferredRelease):
        return
    if not any(in_atomic(connection) for connection in connections.all(initialized_only=True)):
        return
    place = _call_site()
    if place not in _places:
        _places.add(place)
        logger.warning(
            "lock %r was released within an open transaction (%s:%d): the next holder may read what has not been "
            "committed yet. Take the lock outside atomic(), or use lock(..., release_on_commit=True)",
            event.name,
            *place,
        )


def _call_site() -> tuple[str, int]:
    """File and line, outside this package, where the lock was released."""
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).startswith(("django_redlock.", "contextlib")):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
