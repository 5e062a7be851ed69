"""The conformance suite on the backends that need no server."""

import functools

import pytest

from django_redlock.backends.dummy import DummyBackend
from django_redlock.backends.locmem import LocMemBackend
from django_redlock.testing.conformance import BackendConformance, HandleConformance


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
        """Whoever asks gets the lock, at once, and nobody is ever seen to hold it."""
        first, second = client.lock(name), other.lock(name)
        assert first.acquire(False)
        assert second.acquire(False)
        assert (first.locked(), first.owned(), client.held(), client.force_release(name)) == (False, False, [], False)
        second.release()
        first.release()
