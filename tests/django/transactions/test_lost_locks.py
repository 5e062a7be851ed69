"""`release_on_commit`: a transaction that has lost a kept lock is rolled back."""

# ruff: noqa: PT012  (the end of a block raises here)

from contextlib import nullcontext, suppress

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_redlock.errors import LockLost
from tests.django.transactions.kept_locks import Boom, end_lease, wrapped_methods

pytestmark = pytest.mark.usefixtures("stores")


@pytest.mark.django_db(transaction=True)
class TestRealTransactions:
    @pytest.mark.parametrize("on_lost", ["raise", "warn"])
    @pytest.mark.parametrize("fails", [False, True])
    @pytest.mark.parametrize("where", ["in the block", "after it"])
    def test_lost(self, kept, where, fails, on_lost):
        """The transaction is rolled back and can't acquire the lock again, even if the error of the block is caught.

        With on_lost="warn" it is committed, and the lock can be acquired again in it.
        """

        def refused():
            return pytest.raises(LockLost) if on_lost == "raise" else nullcontext()

        with refused(), transaction.atomic():
            with suppress(Boom, LockLost), kept(auto_renew=False, on_lost=on_lost) as held:
                Group.objects.create(name="written")
                if where == "in the block":
                    end_lease(held)
                if fails:
                    raise Boom
            if where == "after it":
                end_lease()
            if where == "in the block" or on_lost == "raise":
                with refused(), kept():
                    pass
        assert Group.objects.exists() == (on_lost == "warn")
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
        """The error of the block counts."""
        with pytest.raises(Boom), transaction.atomic():
            with kept(auto_renew=False):
                pass
            end_lease()
            raise Boom
