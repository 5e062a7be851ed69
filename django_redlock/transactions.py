"""Locks that are held until the database transaction ends.

If a lock is released before the commit, the next holder does not see the transaction's changes yet. So a `CommitLock`
that is released within a transaction stays held until the commit or rollback. If the lock is lost before the commit,
the transaction is rolled back.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from .core.events import Event
from .core.flow.drivers import drive
from .core.flow.requests import Flow
from .core.locks.handle import Ask
from .core.locks.hold import Hold
from .core.locks.lock import Lock
from .core.process import fork
from .core.values import Claim, Refusal
from .errors import LockError, LockLost, LockNotHeld

logger = logging.getLogger("django_redlock.transactions")

# The methods of a connection that can end a transaction. `_UNDO` maps the two that commit to the matching rollback.
_ENDS = ("commit", "savepoint_commit", "rollback", "savepoint_rollback", "set_autocommit", "close")
_UNDO = {"commit": "rollback", "savepoint_commit": "savepoint_rollback"}
_ATTRIBUTE = "_redlock_kept"


def in_atomic(connection: BaseDatabaseWrapper) -> bool:
    """Return whether an ``atomic()`` block is open on ``connection``. The blocks of a ``TestCase`` don't count."""
    if not connection.in_atomic_block or connection.closed_in_transaction:
        return False
    blocks: list[Any] = connection.atomic_blocks
    # In a TestCase, an inner block without a savepoint doesn't count: its end calls no method of the connection.
    return not blocks or any(not block._from_testcase and (block.savepoint or block is blocks[0]) for block in blocks)


def in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a transaction is open on ``connection``: an ``atomic()`` block is open, or autocommit is off.

    As in `in_atomic`, the blocks of a ``TestCase`` don't count. Never connects to the database.
    """
    if connection.in_atomic_block:
        return in_atomic(connection)
    return connection.connection is not None and not connection.autocommit


def after_rollback(database: str, function: Callable[[], Any]) -> None:
    """Call ``function`` at the end of the open transaction if the changes made before this call are rolled back.

    They are rolled back with the whole transaction, or with a savepoint that was set before this call. Has no effect
    outside of ``atomic()``. ``database``: the alias of the database.
    """
    connection = connections[database]
    if not in_atomic(connection):
        return
    committed: Callable[[], None] = lambda: None  # noqa: E731  (Django forgets it when it rolls back)
    connection.on_commit(committed)

    def at_end(done: bool) -> None:
        if not (done and any(entry[1] is committed for entry in connection.run_on_commit)):
            function()

    _locks_of(connection).at_end.append(at_end)


class CommitLock(Lock):
    """A lock whose release waits for the end of the open transaction. Outside a transaction it is an ordinary lock.

    The same transaction can acquire the lock again at once, unless the lock has ``every``, which grants it once in a
    period.
    """

    @classmethod
    def like(cls, other: Lock, database: str | bool) -> CommitLock:
        """Return a handle for the lock of ``other`` whose release waits for transactions of the alias ``database``.

        ``True`` stands for the default database. Raises ``ConnectionDoesNotExist`` for an unknown alias.
        """
        made = cls(other.store, other.primitive, other.name, other.keys, other.options)
        made.names_database = isinstance(database, str)
        made._database = database if isinstance(database, str) else DEFAULT_DB_ALIAS
        connections[made._database]  # raises for an unknown alias, before the lock is acquired
        return made

    names_database: bool  # the code that made the lock has named its database
    _database: str

    def acquire_flow(self, wait: float, claim: Claim | None = None, ask: Ask | None = None) -> Flow[Hold | Refusal]:
        kept: TransactionLocks | None = vars(connections[self._database]).get(_ATTRIBUTE)
        # With `every`, the store refuses a second start in the period.
        hold = kept.take_back(self) if kept and not self.primitive.period else None
        if hold is None:
            return (yield from super().acquire_flow(wait, claim, ask))
        self.take(hold)
        return hold

    def release_flow(self, hold: Hold | None = None) -> Flow[None]:
        connection = connections[self._database]
        if not in_transaction(connection):
            yield from super().release_flow(hold)
            return
        hold = hold or self.required_hold()
        if hold not in self.holds:  # the transaction keeps it already
            raise LockNotHeld(self.name)
        if not hold.lost:
            self.give_up(hold)
            _locks_of(connection).holds[hold] = self
            return
        if self.options.raises_loss:  # the commit is refused even if the caller handles the error
            _locks_of(connection).holds[hold] = None
        yield from super().release_flow(hold)

    def release_now(self, hold: Hold) -> None:
        """Release ``hold`` at once. Called after the end of its transaction. Raises the errors of `Lock.release`."""
        drive(super().release_flow(hold), self.store.perform)


class TransactionLocks:
    """The locks that are kept until one transaction ends, and the functions to call at its end.

    ``holds``: each hold with the handle that releases it at the end; ``None`` if the lock was acquired again or lost.
    ``at_end``: functions that are called with ``True``, or with ``False`` if the commit or rollback has failed.

    Django has a hook for the commit (``on_commit``), but none for the rollback. So the methods of this connection that
    can end a transaction are wrapped, from the first kept lock until the end of the transaction.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.holds: dict[Hold, CommitLock | None] = {}
        self.at_end: list[Callable[[bool], None]] = []
        self._connection = connection
        self._generation = fork.generation
        self._attributes = {_ATTRIBUTE: self, **{name: self._watch(name) for name in _ENDS}}
        vars(connection).update(self._attributes)

    def take_back(self, handle: CommitLock) -> Hold | None:
        """Return the kept hold of the lock of ``handle``, which is then no longer kept; ``None`` if there is none.

        Raises ``LockLost`` if the lock was lost during this transaction.
        """
        for hold, keeper in self.holds.items():
            if (hold.lease.claim.keys, hold.store, hold.primitive) == (handle.keys, handle.store, handle.primitive):
                if hold.lost:
                    raise LockLost(hold.name)
                if keeper and hold.active:
                    self.holds[hold] = None
                    return hold
        return None

    def _watch(self, name: str) -> Any:
        """Return the connection's method ``name``, extended by a check before the commit and by `_end` afterwards.

        If a lock was lost, the transaction is rolled back instead: another holder may have changed the protected data.
        """
        method, undo = getattr(self._connection, name), _UNDO.get(name)
        # Within commit() and rollback(), autocommit is still off: Django switches it on again afterwards.
        is_open = in_atomic if name in ("commit", "rollback") else in_transaction

        @wraps(method)
        def watched(*args: Any, **kwargs: Any) -> Any:
            done = False  # a commit that fails is followed by a rollback
            try:
                if undo and not is_open(self._connection):
                    for hold in self.holds:
                        if hold.lost and hold.options.raises_loss:
                            getattr(self._connection, undo)(*args)
                            raise LockLost(hold.name, "the lease was lost before the transaction could be committed")
                value = method(*args, **kwargs)
                done = True
                return value
            finally:
                if not is_open(self._connection):
                    self._end(done)

        return watched

    def _end(self, done: bool) -> None:
        attributes = vars(self._connection)
        for name, value in self._attributes.items():
            if attributes.get(name) is value:
                del attributes[name]
        if self._generation != fork.generation:  # in the child of a fork, nothing is kept
            return
        holds, self.holds = self.holds, {}
        for hold, keeper in holds.items():
            try:
                if keeper:
                    keeper.release_now(hold)
            except LockError as error:
                logger.warning("%s (at the release after the end of the transaction)", error)
        while self.at_end:
            self.at_end.pop(0)(done)


def _locks_of(connection: BaseDatabaseWrapper) -> TransactionLocks:
    locks: TransactionLocks | None = vars(connection).get(_ATTRIBUTE)
    return locks or TransactionLocks(connection)


# ── locks that are released too early ────────────────────────────────────────────────────────

_places: set[tuple[str, int]] = set()


class _Opened(threading.local):
    """The database connections that each thread has opened, because ``django.db.connections.all()`` is slow to read."""

    connections: tuple[BaseDatabaseWrapper, ...] = ()


_opened = _Opened()


def _watch_connection(*, connection: BaseDatabaseWrapper, **_kwargs: Any) -> None:
    others = (each for each in _opened.connections if each.alias != connection.alias)
    _opened.connections = (*others, connection)


connection_created.connect(_watch_connection, dispatch_uid="django_redlock.transactions")


def warn_of_early_release(event: Event) -> None:
    """Log a warning if a lock was released while a database transaction of this thread was open.

    ``event``: the release. Each place in the code gets one warning. No warning is logged for a `CommitLock`, unless the
    transaction is on another database than the default and the lock names no database.
    """
    for connection in _opened.connections:
        if connection.in_atomic_block and in_atomic(connection):
            break
    else:
        return
    lock = event.lock
    if isinstance(lock, CommitLock) and lock.names_database:
        return
    place = _call_site()
    if place not in _places:
        _places.add(place)
        logger.warning(
            "lock %r was released within an open transaction (%s:%d): the next holder may read what has not been "
            "committed yet. Acquire the lock outside atomic(), or use lock(..., release_on_commit=%r)%s",
            event.name,
            *place,
            True if connection.alias == DEFAULT_DB_ALIAS else connection.alias,
            f": True refers to {DEFAULT_DB_ALIAS!r}" if isinstance(lock, CommitLock) else "",
        )


def _call_site() -> tuple[str, int]:
    """Return the file and line of the code outside this package that released the lock."""
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).startswith(("django_redlock.", "contextlib")):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
