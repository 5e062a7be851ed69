"""The database store: the answer is a row that is written in the view's transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, transaction
from django.utils import timezone

from ..core.events import logger
from ..core.locks.lock import Lock
from ..errors import LockUnavailable
from .answers import RUNNING, Answer, Entry, Known

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from .models import StoredAnswer

T = TypeVar("T")
Work = Callable[[], tuple[T, Answer | None]]  # runs the view, and returns the response and the answer to store


class _RowRefused(Exception):
    """The database has refused the row: another request has written it, or a timeout, a full disk etc. prevents it."""


def run_in_transaction(database: str, lock: Lock, entry: Entry, work: Work[T]) -> T | Known:
    """Run ``work`` in a transaction of the database alias ``database``, and store the answer in the same transaction.

    Returns the response, or `Known` if an earlier request of the same user with the same key has run or still runs. If
    ``work`` returns no answer or raises, the transaction is rolled back, and a repeated request runs ``work`` again.
    `Known.found` is "unavailable" if the database can't write the row. Raises ``ImproperlyConfigured`` for a database
    without autocommit and for a missing table.

    ``lock`` refuses a repeat while the first request runs, so that the client does not wait. While the lock store is
    unavailable, a repeat waits in the database for the row of the first request, and then gets its answer.
    """
    rows, connection = _rows(database), connections[database]
    if not (connection.in_atomic_block or connection.get_autocommit()):
        raise ImproperlyConfigured(
            f"idempotent(database={database!r}) needs autocommit, without which nothing commits its transaction"
        )
    if known := _find(rows, entry):
        return known
    with ExitStack() as stack:
        try:
            if not stack.enter_context(lock.attempt()):
                return RUNNING
        except LockUnavailable as error:
            logger.warning("%s: a repeated request waits in the database: %s", entry.label, error)
        try:
            return _run(rows, entry, work)
        except _RowRefused as refused:
            if known := _find(rows, entry):
                return known
            logger.exception("%s: the row of the request can't be written: %s", entry.label, refused.__cause__)
            return Known("unavailable")


def _run(rows: QuerySet[StoredAnswer], entry: Entry, work: Work[T]) -> T:
    with transaction.atomic(using=rows.db, durable=True):
        try:
            rows.create(name=entry.name, fingerprint=entry.fingerprint, expires_at=_end(entry))
        except DatabaseError as error:
            raise _RowRefused from error
        response, answer = work()
        if answer is None or connections[rows.db].needs_rollback:
            transaction.set_rollback(True, using=rows.db)
        else:
            rows.filter(name=entry.name).update(answer=answer.encoded(), expires_at=_end(entry))
    return response


def _find(rows: QuerySet[StoredAnswer], entry: Entry) -> Known | None:
    row, now = rows.filter(name=entry.name), timezone.now()
    if (found := row.first()) is None:
        return None
    if found.expires_at <= now:
        row.filter(expires_at__lte=now).delete()
        return None
    if found.fingerprint != entry.fingerprint:
        return Known("mismatch")
    return Known("answer", bytes(found.answer))


def _rows(database: str) -> QuerySet[StoredAnswer]:
    try:
        model: type[StoredAnswer] = apps.get_model("redlock_idempotency", "StoredAnswer")
    except LookupError as error:
        raise ImproperlyConfigured(
            'idempotent(database=…) needs "django_redlock.idempotency" in INSTALLED_APPS, and `manage.py migrate`'
        ) from error
    return model.objects.using(database)


def _end(entry: Entry) -> datetime:
    return timezone.now() + timedelta(seconds=entry.keep)
