"""`release_on_commit`: a transaction that has lost a kept lock is rolled back."""

# ruff: noqa: PT012  (the end of a block raises here)

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_redlock.errors import LockLost
from tests.django.transactions.kept_locks import Boom, end_lease, wrapped_methods

pytestmark = pytest.mark.usefixtures("stores")


@pytest.mark.django_db(transaction=True)
class TestRealTransactions:
    def test_lost_in_the_block(self, kept):
        """A lock that is lost within its block raises LockLost, and the transaction is rolled back."""
        with pytest.raises(LockLost), transaction.atomic(), kept(auto_renew=False) as held:
            Group.objects.create(name="written")
            end_lease(held)
        assert not Group.objects.exists()

    def test_lost_in_a_block_that_failed(self, kept):
        """A lock that is lost in a block rolls the transaction back, even if the block's own error is caught."""
        refused = pytest.raises(LockLost, match="before the transaction")
        with refused, transaction.atomic(), pytest.raises(Boom), kept(auto_renew=False) as held:
            Group.objects.create(name="written")
            end_lease(held)
            raise Boom
        assert not Group.objects.exists()
        assert wrapped_methods() == []

    def test_lost_in_a_block_that_failed_and_on_lost_warn(self, kept):
        """With on_lost="warn" the transaction is committed, and the lock can be acquired again in it."""
        with transaction.atomic():
            with pytest.raises(Boom), kept(auto_renew=False, on_lost="warn") as held:
                Group.objects.create(name="written")
                end_lease(held)
                raise Boom
            with kept():
                pass
        assert Group.objects.exists()

    def test_lost_and_on_lost_warn(self, kept):
        """With on_lost="warn" the transaction is committed."""
        with transaction.atomic():
            with kept(auto_renew=False, on_lost="warn"):
                Group.objects.create(name="written")
            end_lease()
        assert Group.objects.exists()

    def test_lost_before_the_commit(self, kept):
        """A lock that is lost before the commit rolls it back, and can't be acquired again in the transaction."""
        with pytest.raises(LockLost, match="before the transaction"), transaction.atomic():
            with kept(auto_renew=False):
                Group.objects.create(name="written")
            end_lease()
            with pytest.raises(LockLost):
                kept().acquire()
        assert not Group.objects.exists()
        assert wrapped_methods() == []
        Group.objects.create(name="connection works")

    def test_lost_after_it_was_taken_again(self, kept):
        """A lock that is lost in a second block rolls back the first block, too, even if the error is caught."""
        with pytest.raises(LockLost, match="before the transaction"), transaction.atomic():
            held = kept(auto_renew=False)
            with held:
                Group.objects.create(name="written")
            with pytest.raises(LockLost), held:
                end_lease(held)
            with pytest.raises(LockLost):
                held.acquire()
        assert not Group.objects.exists()


@pytest.mark.django_db
class TestInsideTestCase:
    """Django's TestCase, whose transaction around each test does not count."""

    def test_lost(self, kept):
        """A lock that is lost before the end of the outermost block rolls it back."""
        with pytest.raises(LockLost), transaction.atomic():
            with kept(auto_renew=False):
                Group.objects.create(name="written")
            end_lease()
        assert not Group.objects.exists()

    def test_lost_and_failed(self, kept):
        """An error of the block is raised, even if the lock is lost."""
        with pytest.raises(Boom), transaction.atomic():
            with kept(auto_renew=False):
                pass
            end_lease()
            raise Boom
