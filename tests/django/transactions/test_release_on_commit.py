"""`release_on_commit`: the lock is kept until the end of the transaction, after a commit and after a rollback."""

# ruff: noqa: PT012  (the end of a block raises here)

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction

from django_redlock import lock
from django_redlock.decorators import locked
from django_redlock.errors import LockNotAcquired, LockNotHeld
from django_redlock.testing.conformance.harness.fixtures import in_child
from tests.django.transactions.kept_locks import Boom, wrapped_methods

pytestmark = pytest.mark.usefixtures("stores")


@pytest.mark.django_db(transaction=True)
class TestRealTransactions:
    def test_commit(self, kept, is_locked):
        """A kept lock is renewed until the commit, and free when the commit's callbacks run."""
        seen = []
        with transaction.atomic():
            with kept() as held:
                transaction.on_commit(lambda: seen.append(is_locked()))
            assert is_locked()
            with pytest.raises(LockNotHeld):
                held.release()
        assert seen == [False]
        assert wrapped_methods() == []

    def test_rollback(self, kept, is_locked):
        """After a rollback the kept lock is free, so that a retry can acquire it."""
        for _ in range(2):
            with pytest.raises(Boom), transaction.atomic(), kept():
                raise Boom
            assert not is_locked()
        assert wrapped_methods() == []

    def test_outermost(self, kept, is_locked):
        """A kept lock is released at the end of the outermost block, not of an inner one."""
        with transaction.atomic():
            with transaction.atomic(), kept("committed"):
                pass
            with pytest.raises(Boom), transaction.atomic(), kept("rolled back"):
                raise Boom
            with transaction.atomic(savepoint=False), kept("no savepoint"):
                pass
            assert all(map(is_locked, ("committed", "rolled back", "no savepoint")))
        assert not any(map(is_locked, ("committed", "rolled back", "no savepoint")))

    def test_released_in_a_savepoint(self, kept, is_locked):
        """A kept lock that is released in a savepoint is kept to the end of the transaction."""
        held = kept()
        with transaction.atomic():
            held.acquire()
            with pytest.raises(Boom), transaction.atomic():
                held.release()
                raise Boom
            assert is_locked()
        assert not is_locked()

    def test_failing_commit(self, kept, is_locked, monkeypatch):
        """A kept lock is free after a commit that the database refuses."""
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            monkeypatch.setattr(connection, "_commit", lambda: 1 / 0)
            with kept():
                pass
        assert not is_locked()

    def test_manual_transactions(self, kept, is_locked):
        """With autocommit off, commit(), rollback() and set_autocommit(True) release kept locks."""
        connection.ensure_connection()
        transaction.set_autocommit(False)
        try:
            for end in (transaction.commit, transaction.rollback):
                with kept():
                    Group.objects.exists()
                assert is_locked()
                end()
                assert not is_locked()
            with kept():
                pass
            assert is_locked()
        finally:
            transaction.set_autocommit(True)
        assert not is_locked()

    def test_commit_inside_atomic_is_refused_and_frees_nothing(self, kept, is_locked):
        """commit() inside atomic() raises Django's error, and the lock is still kept."""
        with transaction.atomic():
            with kept():
                pass
            with pytest.raises(transaction.TransactionManagementError):
                transaction.commit()
            assert is_locked()
        assert not is_locked()

    def test_callback_that_fails(self, kept, is_locked):
        """A commit callback that raises does not keep the lock."""
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            transaction.on_commit(lambda: 1 / 0)
            with kept():
                pass
        assert not is_locked()

    def test_again_in_the_same_transaction(self, kept, using, own_thread, is_locked):
        """A transaction can acquire a lock that it keeps again, with the same token, and other threads are refused."""
        with transaction.atomic():
            with kept() as first:
                token = first.token
            with kept() as second:
                assert second.token == token
                assert second.owned()
                answers = []
                own_thread(lambda: answers.append(lock("stock", using).acquire(blocking=False))).join(20)
                assert answers == [False]
            assert is_locked()
        assert not is_locked()

    def test_released_by_hand_within_its_block(self, kept, is_locked):
        """A kept lock that was released in its block ends the block as any lock does, and is kept."""
        with transaction.atomic():
            with pytest.raises(LockNotHeld), kept() as held:
                held.release()
            assert is_locked()
            assert (held.token, held.lost) == (None, False)
        assert not is_locked()

    def test_once_per_period(self, kept, is_locked):
        """A transaction that keeps a lock with `every` is refused a second start, like every other caller."""
        with transaction.atomic():
            with kept(every=3600):
                pass
            with pytest.raises(LockNotAcquired), kept(every=3600):
                pass
        assert is_locked()

    def test_store_down_at_the_commit(self, stores, own_redis, settings, caplog):
        """If the store is down after the commit, the commit stands and a warning is logged."""
        server = own_redis()
        settings.REDLOCK = {"default": {**settings.REDLOCK["default"], "LOCATION": server.url}}
        with transaction.atomic():
            with lock("stock", release_on_commit=True):
                Group.objects.create(name="written")
            server.kill()
        assert Group.objects.exists()
        assert "after the end of the transaction" in caplog.text

    def test_decorator(self, using, is_locked):
        reserve = locked("stock:{sku}", using=using, release_on_commit=True)(lambda sku: sku)
        with transaction.atomic():
            assert [reserve(1), reserve(1)] == [1, 1]
            assert is_locked("stock:1")
        assert not is_locked("stock:1")

    def test_the_child_is_refused_the_lock(self, stores):
        """A forked child is refused a lock that its parent's transaction keeps."""
        with transaction.atomic():
            with lock("stock", release_on_commit=True):
                pass
            assert in_child(lambda: lock("stock", release_on_commit=True).acquire(blocking=False)) is False
            assert lock("stock").locked()
        assert not lock("stock").locked()


@pytest.mark.django_db
class TestInsideTestCase:
    """pytest-django's `db` is Django's TestCase: the transaction around each test does not count."""

    def test_outside_atomic(self, kept, is_locked):
        """The test's own transaction keeps no lock."""
        with kept():
            pass
        assert not is_locked()

    def test_ends_of_blocks(self, kept, is_locked):
        """A kept lock is released at the end of the code's own outermost block."""
        with transaction.atomic():
            with transaction.atomic(), kept():
                pass
            assert is_locked()
        assert not is_locked()
        with pytest.raises(Boom), transaction.atomic(), kept():
            raise Boom
        assert not is_locked()
        assert wrapped_methods() == []

    def test_without_a_savepoint(self, kept, is_locked):
        """A block without a savepoint keeps no lock within a TestCase, because its end can't be observed."""
        with transaction.atomic(savepoint=False):
            with kept():
                pass
            with transaction.atomic():
                with kept("inner"):
                    pass
                assert is_locked("inner")
        assert (is_locked(), is_locked("inner")) == (False, False)


def test_outside_a_transaction(kept, is_locked):
    """Outside a transaction the lock is released at the end of its block."""
    with kept():
        with pytest.raises(LockNotAcquired):
            kept().__enter__()
        assert is_locked()
    assert not is_locked()


def test_unknown_database():
    """An unknown database alias is an error before the lock is acquired."""
    with pytest.raises(Exception, match="elsewhere"):
        lock("stock", release_on_commit="elsewhere")


def test_connection_closed(file, using, is_locked):
    """A connection that is closed within the block, and so rolled back, releases its kept locks."""
    with transaction.atomic(file):
        with lock("stock", using, release_on_commit=file):
            pass
        connections[file].close()
        assert not is_locked()
        with lock("stock", using, release_on_commit=file):
            pass
        assert not is_locked()
    assert not is_locked()


def test_two_threads(file, using, own_thread, is_locked):
    """The commit of one thread does not release the kept locks of another."""

    def other():
        with transaction.atomic(file), lock("ours", using, release_on_commit=file):
            pass
        connections[file].close()

    with transaction.atomic(file):
        with lock("theirs", using, release_on_commit=file):
            pass
        own_thread(other).join(20)
        assert (is_locked("ours"), is_locked("theirs")) == (False, True)
    assert not is_locked("theirs")


def test_other_database(file, is_locked, using):
    """Only transactions of the named database keep a lock."""
    with transaction.atomic(file):
        with lock("kept", using, release_on_commit=file), lock("not kept", using, release_on_commit=True):
            pass
        assert (is_locked("kept"), is_locked("not kept")) == (True, False)
    assert not is_locked("kept")


async def test_in_a_coroutine(using):
    """In a coroutine, which has no transactions, the lock is released at the end of its block."""
    async with lock("stock", using, release_on_commit=True) as held:
        assert await held.aowned()
    assert not await held.alocked()
