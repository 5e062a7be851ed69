"""A call that is enqueued in a transaction: the record goes with the row."""

import contextlib

import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, connections, transaction

from django_redlock.tasks import is_duplicate


class Undo(Exception):
    """Ends a block with a rollback."""


@contextlib.contextmanager
def undone(database):
    """A block that is rolled back."""
    with contextlib.suppress(Undo), transaction.atomic(using=database):
        yield
        raise Undo


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_rollback(database, app, unique, held, colour):
    enqueue = app.until.enqueue if colour == "sync" else async_to_sync(app.until.aenqueue)
    with undone(database):
        first = enqueue(unique)
        assert is_duplicate(enqueue(unique))
        assert held(f"until:{unique}") == ("queued", first.id)
    assert held(f"until:{unique}") is None


def test_commit(database, app, unique, held):
    with transaction.atomic(using=database):
        first = app.until.enqueue(unique)
        with transaction.atomic(using=database):
            other = app.short.enqueue(unique)
    assert held(f"until:{unique}") == ("queued", first.id)
    assert held(f"short:{unique}") == ("queued", other.id)


def test_savepoint(database, app, unique, held):
    """Only what is rolled back goes, at the end of the transaction."""
    with transaction.atomic(using=database):
        first = app.until.enqueue(unique)
        with undone(database):
            app.short.enqueue(unique)
    assert held(f"until:{unique}") == ("queued", first.id)
    assert held(f"short:{unique}") is None


def test_failing_commit(database, app, unique, held):

    @transaction.atomic(using=database)
    def work():
        with connections[database].cursor() as cursor:
            cursor.execute(
                "CREATE TEMP TABLE node (id integer PRIMARY KEY, parent integer REFERENCES node"
                " DEFERRABLE INITIALLY DEFERRED)"
            )
            cursor.execute("INSERT INTO node VALUES (1, 2)")
        app.until.enqueue(unique)

    with pytest.raises(IntegrityError):
        work()
    assert held(f"until:{unique}") is None


def test_closed_connection(database, app, unique, held):
    """The database rolls back a transaction whose connection is closed."""
    with transaction.atomic(using=database):
        app.until.enqueue(unique)
        transaction.get_connection(database).close()
    assert held(f"until:{unique}") is None


def test_on_commit(dummy, database, app, unique, held):
    """A call that is enqueued on commit leaves nothing when there is none."""
    with undone(database):
        transaction.on_commit(lambda: app.until.enqueue(unique), using=database)
    assert held(f"until:{unique}") is None


def test_queue_outside_of_the_database(database, dummy, app, unique, held):
    """What another backend has sent stays sent: the record stays."""
    with undone(database):
        first = app.until.enqueue(unique)
    assert held(f"until:{unique}") == ("queued", first.id)
