"""The conformance suite on one Redis, over TCP, alone and shared with older code, and on five nodes."""

import functools

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.timestamp import TimestampBackend
from django_redlock.errors import LockNotSupported
from django_redlock.testing.conformance import BackendConformance
from django_redlock.testing.conformance.exclusion import ExclusionCases
from django_redlock.testing.conformance.leases import LeaseCases
from testproject.redis_server import RedisServer
from tests.conformance.several_servers import OnRedlock
from tests.support.service import revive

# Names are unique and nothing else is looked at: the server is shared with all other tests, and not emptied.


class TestRedis(BackendConformance):
    @pytest.fixture
    def new_backend(self, running):
        server = running(RedisServer)
        revive(server)
        # On a machine with much to do a server may take its time: that is not what is tested here.
        return functools.partial(RedisBackend, server.url, node_timeout=10)


class OnOldCode:
    """The locks are shared with older code."""

    lacks = ("fair", "rlock", "rwlock", "semaphore", "striped", "multilock", "every", "fencing")
    unit = "s"

    @pytest.fixture
    def new_backend(self, redis_url):
        return functools.partial(TimestampBackend, redis_url, unit=self.unit, node_timeout=10)


class TestSeconds(OnOldCode, BackendConformance):
    def test_fencing_is_refused(self, client, name):
        """fencing=True is refused, because older code has no fencing tokens."""
        with pytest.raises(LockNotSupported, match="fencing"):
            client.lock(name, fencing=True)


class TestMilliseconds(OnOldCode, LeaseCases):
    """The tests with timestamps in milliseconds."""

    unit = "ms"


class TestRedlock(OnRedlock, ExclusionCases, LeaseCases):
    """Exclusion and leases. `test_several_servers` has the other cases."""
