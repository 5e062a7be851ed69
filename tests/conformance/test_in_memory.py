"""The conformance suite on the backends that need no server."""

import functools

import pytest

from django_redlock.backends.dummy import DummyBackend
from django_redlock.backends.locmem import LocMemBackend
from django_redlock.errors import LockNotHeld
from django_redlock.testing.conformance import BackendConformance, HandleConformance
from django_redlock.testing.conformance.shared_handles import MAKE


class TestLocMem(BackendConformance):
    """Locks in the memory of one process."""

    one_process = True

    @pytest.fixture
    def new_backend(self, unique):
        return functools.partial(LocMemBackend, unique)


class TestDummy(HandleConformance):
    """A backend that grants everything."""

    @pytest.fixture
    def new_backend(self):
        return DummyBackend

    def test_grants_everything(self, client, other, name):
        """Every acquire() is granted at once, and no lock is shown as held."""
        first, second = client.lock(name), other.lock(name)
        assert first.acquire(False)
        assert second.acquire(False)
        assert (first.locked(), first.owned(), client.held(), client.force_release(name)) == (False, False, [], False)
        second.release()
        first.release()

    @pytest.mark.parametrize("kind", sorted(MAKE))
    def test_grants_every_kind(self, kind):
        """Locks of every kind are granted to any number of holders, who can extend and release them."""
        handles = [MAKE[kind](DummyBackend(), "x") for _ in range(4)]
        assert all(handle.acquire(False) for handle in handles)
        assert all(handle.extend(20) > 10 for handle in handles)
        assert not any(handle.locked() or handle.owned() for handle in handles)
        for handle in handles:
            handle.release()
            with pytest.raises(LockNotHeld):
                handle.release()

    def test_striped_lock(self):
        """A striped lock has a stripe, can switch to others, and never gets an excluded one."""
        lock = DummyBackend().striped("x", 4, without={0})
        with lock:
            seen = {lock.stripe}
            while lock.switch():
                seen.add(lock.stripe)
        assert seen == {1, 2, 3}
