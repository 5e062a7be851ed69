"""The database store: the answer is a row, written in the same transaction as the work of the view."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, OperationalError, connections, transaction
from django.utils import timezone

from ..backend_registry import locks
from ..core.events import logger
from ..errors import LockNotAcquired, LockUnavailable
from .answers import Answer
from .entries import Entry, Known

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from .models import StoredAnswer

T = TypeVar("T")
_TRIES = 3
# The errors of a statement that has waited for another transaction: the row is in use, and the request may be repeated.
_IN_USE = frozenset(
    {
        1205,  # MySQL and MariaDB: lock wait timeout
        1213,  # MySQL and MariaDB: deadlock. Seen when the first of several equal requests rolls back.
        "40001",  # PostgreSQL: serialization failure
        "40P01",  # PostgreSQL: deadlock
        "55P03",  # PostgreSQL: lock_timeout
        "SQLITE_BUSY",
    }
)


class _RowTaken(Exception):
    """Another request has committed a row with the same name."""


class _RowInUse(Exception):
    """The transaction of another request has a row with the same name, and the database has given up waiting for it."""


class DatabaseStore:
    """A store for answers in the database ``alias``.

    A lock of the backend ``using`` refuses a repeat while the first request runs, so that the client does not wait.
    Without the lock, for example while Redis is down, a repeat waits in the database for the row of the first request,
    and then gets its answer. ``ttl``: seconds of the lock's lease; ``None``: the backend's default.
    """

    def __init__(self, alias: str, using: str, ttl: float | None) -> None:
        self.alias = alias
        self.using = using
        self.ttl = ttl

    def run(self, entry: Entry, work: Callable[[], tuple[T, Answer | None]]) -> T | Known:
        """Run ``work`` in a transaction, and store its answer in the same transaction.

        ``work``: runs the view, and returns the response and the answer to store. Returns the response, or `Known` if
        an earlier request of the same user with the same key has run or still runs. If ``work`` returns no answer or
        raises, the transaction is rolled back, and a repeated request runs ``work`` again. Raises
        ``ImproperlyConfigured`` for a database without autocommit and for a missing table.
        """
        for _ in range(_TRIES):
            if known := self._find(entry):
                return known
            with ExitStack() as stack:
                try:
                    self._lock(stack, entry)
                    return self._run(entry, work)
                except LockNotAcquired as error:
                    if error.name != entry.name:  # a lock of the view
                        raise
                    return Known("running")
                except _RowInUse:
                    return Known("running")
                except _RowTaken as error:
                    taken = error
        raise ImproperlyConfigured(f"the row of {entry.name} can't be written: {taken.__cause__}") from taken.__cause__

    def _run(self, entry: Entry, work: Callable[[], tuple[T, Answer | None]]) -> T:
        rows, connection = self._rows(), connections[self.alias]
        if not connection.in_atomic_block and not connection.get_autocommit():
            raise ImproperlyConfigured(
                f"idempotent(database={self.alias!r}) needs autocommit, without which nothing commits its transaction"
            )
        with transaction.atomic(using=self.alias, durable=True):
            try:
                rows.create(name=entry.name, fingerprint=entry.fingerprint, expires_at=_end(entry))
            except IntegrityError as error:
                raise _RowTaken from error
            except OperationalError as error:
                if not _is_in_use(error):
                    raise
                raise _RowInUse from error
            response, answer = work()
            if answer is None or connection.needs_rollback:
                transaction.set_rollback(True, using=self.alias)
            else:
                rows.filter(name=entry.name).update(answer=answer.encoded(), expires_at=_end(entry))
        return response

    def _find(self, entry: Entry) -> Known | None:
        row = self._rows().filter(name=entry.name)
        if (found := row.first()) is None:
            return None
        if found.expires_at <= (now := timezone.now()):
            row.filter(expires_at__lte=now).delete()
            return None
        if found.fingerprint != entry.fingerprint:
            return Known("mismatch")
        return Known("answer", bytes(found.answer))

    def _rows(self) -> QuerySet[StoredAnswer]:
        try:
            model: type[StoredAnswer] = apps.get_model("redlock_idempotency", "StoredAnswer")
        except LookupError as error:
            raise ImproperlyConfigured(
                'idempotent(database=…) needs "django_redlock.idempotency" in INSTALLED_APPS, and `manage.py migrate`'
            ) from error
        return model.objects.using(self.alias)

    def _lock(self, stack: ExitStack, entry: Entry) -> None:
        lock = locks[self.using].lock(entry.name, ttl=self.ttl, blocking=False, owner=entry.label, on_lost="warn")
        try:
            stack.enter_context(lock)
        except LockUnavailable as error:
            logger.warning("%s: a repeated request waits in the database: %s", entry.label, error)


def _is_in_use(error: OperationalError) -> bool:
    cause = error.__cause__
    codes = (*error.args[:1], *(getattr(cause, name, None) for name in ("sqlstate", "pgcode", "sqlite_errorname")))
    return not _IN_USE.isdisjoint(codes)


def _end(entry: Entry) -> datetime:
    return timezone.now() + timedelta(seconds=entry.keep)
