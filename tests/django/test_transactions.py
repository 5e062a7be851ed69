"""`release_on_commit`: the lock is kept until the end of the transaction, after a commit and after a rollback."""

# ruff: noqa: PT012  (the end of a block raises here)

import contextlib
import threading
from unittest import mock

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, connections, transaction

from django_redlock import lock, locks
from django_redlock.decorators import locked
from django_redlock.errors import LockNotAcquired, LockNotHeld
from tests.django.kept_locks import Boom, wrapped_methods
from tests.support.service import poll

pytestmark = pytest.mark.usefixtures("stores")


@pytest.mark.django_db(transaction=True)
class TestRealTransactions:
    def test_commit(self, kept, is_locked):
        """Kept beyond its block until the commit, free when the callbacks of the commit run, renewed meanwhile."""
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
        """Free when the block that was rolled back has been left: a retry takes it at once."""
        for _ in range(3):
            with pytest.raises(Boom), transaction.atomic(), kept():
                raise Boom
            assert not is_locked()
        assert wrapped_methods() == []

    def test_set_rollback(self, kept, is_locked):
        """A rollback without an exception is one too."""
        with transaction.atomic():
            with kept():
                transaction.set_rollback(True)
            assert is_locked()
        assert not is_locked()

    def test_outermost(self, kept, is_locked):
        """The outermost block counts: neither an inner one's commit nor its rollback frees the lock."""
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
        """Taken outside a savepoint and released in it: what was written outside is protected to the end."""
        held = kept()
        with transaction.atomic():
            held.acquire()
            with pytest.raises(Boom), transaction.atomic():
                held.release()
                raise Boom
            assert is_locked()
        assert not is_locked()

    def test_failing_commit(self, kept, is_locked, monkeypatch):
        """A commit that the database refuses is a rollback."""

        def refuse():
            raise IntegrityError("deferred constraint")

        with pytest.raises(IntegrityError), transaction.atomic():
            monkeypatch.setattr(connections["default"], "_commit", refuse)
            with kept():
                pass
        assert not is_locked()

    def test_manual_transactions(self, kept, is_locked):
        """With autocommit off, commit() and rollback() end the transaction, and so does autocommit."""
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
        """commit() inside atomic() is Django's error: the transaction goes on, and the lock with it."""
        with transaction.atomic():
            with kept():
                pass
            with pytest.raises(transaction.TransactionManagementError):
                transaction.commit()
            assert is_locked()
        assert not is_locked()

    def test_callback_that_fails(self, kept, is_locked):
        """A callback of the commit that raises keeps no lock."""
        with pytest.raises(Boom), transaction.atomic():
            transaction.on_commit(self._fail)
            with kept():
                pass
        assert not is_locked()

    def _fail(self):
        raise Boom

    def test_again_in_the_same_transaction(self, kept, using, own_thread, is_locked):
        """The transaction that keeps a lock has it: taken again at once, with the same token; others are refused."""
        with transaction.atomic():
            with kept() as first:
                token, fence = first.token, first.fencing_token
            with kept() as second:
                assert (second.token, second.fencing_token) == (token, fence)
                assert second.owned()
                answers = []
                own_thread(lambda: answers.append(lock("stock", using).acquire(blocking=False))).join(20)
                assert answers == [False]
            assert is_locked()
        assert not is_locked()

    def test_released_twice_while_it_is_renewed(self, stores, kept, using, own_thread, is_locked):
        """One handle that is used twice keeps the lock to the end, though a renewal is under way at each release."""
        store, sent, answered = locks[using], threading.Event(), threading.Event()
        perform = store.perform

        def slow(request):
            if threading.current_thread().name == "redlock-renewal":
                sent.set()
                assert answered.wait(20)
            return perform(request)

        def answer_after_the_release():
            with contextlib.suppress(TimeoutError):  # a release that waits for the answer
                poll(lambda: held.token is None, timeout=0.1, what="the release")
            answered.set()

        with transaction.atomic(), mock.patch.object(store, "perform", slow):
            held = kept(ttl=3)
            for _ in range(2):
                with held:
                    sent.clear()
                    answered.clear()
                    assert sent.wait(20)
                    answering = own_thread(answer_after_the_release)
                answering.join(20)
            [keeper] = vars(connections["default"])["_redlock_kept"].locks
            end = keeper._lease.valid_until + 0.75  # half of the ttl: two renewals
            poll(lambda: keeper.lost or keeper._lease.valid_until > end, timeout=20, what="what comes after that")
            assert is_locked()
            assert not keeper.lost
        assert not is_locked()

    def test_several(self, kept, is_locked):
        """Many locks are kept by one transaction, and each is freed once."""
        names = [f"stock:{number}" for number in range(5)]
        with transaction.atomic():
            for name in names:
                with kept(name):
                    pass
            assert all(map(is_locked, names))
        assert not any(map(is_locked, names))

    def test_store_down_at_the_commit(self, stores, own_redis, settings, caplog):
        """A store that can't be asked after the commit: the commit stands, the log says it."""
        server = own_redis()
        settings.REDLOCK = {"default": {**settings.REDLOCK["default"], "LOCATION": server.url}}
        with transaction.atomic():
            with lock("stock", release_on_commit=True):
                Group.objects.create(name="written")
            server.kill()
        assert Group.objects.exists()
        assert "after the end of the transaction" in caplog.text

    def test_decorator(self, using, is_locked):
        """@locked has it too."""

        @locked("stock:{sku}", using=using, release_on_commit=True)
        def reserve(sku):
            pass

        with transaction.atomic():
            reserve(1)
            reserve(1)
            assert is_locked("stock:1")
        assert not is_locked("stock:1")


@pytest.mark.django_db
class TestInsideTestCase:
    """pytest-django's `db` is Django's TestCase: a transaction around each test, which the code in it doesn't count."""

    def test_outside_atomic(self, kept, is_locked):
        """The test's own transaction keeps no lock."""
        with kept():
            pass
        assert not is_locked()

    def test_ends_of_blocks(self, kept, is_locked):
        """The code's outermost block counts, as it would in production."""
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
        """A block without one, as around `post_delete`, keeps no lock here: nobody would say when it ends."""
        with transaction.atomic(savepoint=False):
            with kept():
                pass
            with transaction.atomic():
                with kept("inner"):
                    pass
                assert is_locked("inner")
        assert (is_locked(), is_locked("inner")) == (False, False)


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction(kept, is_locked):
    """An ordinary lock: free after its block, refused while it is held."""
    with kept():
        with pytest.raises(LockNotAcquired):
            kept().__enter__()
        assert is_locked()
    assert not is_locked()


def test_opens_no_connection(kept, is_locked):
    """Who uses no database needs none: pytest-django would refuse the connection here."""
    with kept():
        assert is_locked()
    assert not is_locked()


def test_unknown_database():
    """A database alias that doesn't exist is an error before the lock is taken."""
    with pytest.raises(Exception, match="elsewhere"):
        lock("stock", release_on_commit="elsewhere")


def test_connection_closed(file, using, is_locked):
    """A connection that is closed within the block has rolled back."""
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
    """Each thread has a transaction of its own: one's commit frees nothing of the other's."""
    keeping, go_on = threading.Event(), threading.Event()

    def other():
        with transaction.atomic(file):
            with lock("theirs", using, release_on_commit=file):
                pass
            keeping.set()
            go_on.wait(20)
        connections[file].close()

    thread = own_thread(other)
    assert keeping.wait(20)
    with transaction.atomic(file), lock("ours", using, release_on_commit=file):
        pass
    assert (is_locked("ours"), is_locked("theirs")) == (False, True)
    go_on.set()
    thread.join(20)
    assert not is_locked("theirs")


def test_other_database(file, is_locked, using):
    """The transactions of the named database count, and no other's."""
    with transaction.atomic(file):
        with lock("kept", using, release_on_commit=file), lock("not kept", using, release_on_commit=True):
            pass
        assert (is_locked("kept"), is_locked("not kept")) == (True, False)
    assert not is_locked("kept")


async def test_in_a_coroutine(using):
    """There are no transactions in coroutines: an ordinary release."""
    async with lock("stock", using, release_on_commit=True) as held:
        assert await held.aowned()
    assert not await held.alocked()
