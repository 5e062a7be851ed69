"""The renewal of several stores: a failure of one store does not affect the others."""

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.harness.fixtures import eventually
from tests.backends.failures.broken_servers import OwnRedis, is_free, served


class TestHungNeighbour(OwnRedis):
    """One store hangs and another does not."""

    @pytest.fixture(autouse=True)
    def runs_on(self, server):
        yield
        server.resume()

    def test_releases_that_failed(self, server, client, name, unique, spawn):
        """Releases that wait for a hung store don't delay renewals of another store."""
        locks = [client.lock(f"{name}:{number}") for number in range(16)]
        for lock in locks:
            assert is_free(lock)
        elsewhere = LocMemBackend(unique).lock(name, ttl=5)
        elsewhere.acquire()
        server.pause()
        for failed in [spawn(lock.release) for lock in locks]:
            with pytest.raises(LockUnavailable):
                failed.result(TEST_TIMEOUT)
        assert eventually(lambda: elsewhere.lost, 6) is False
        server.resume()
        assert eventually(lambda: served(client.held) == [])
