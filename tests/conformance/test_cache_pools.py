"""A django-redis cache that is reached by TLS or through Sentinels, and pools whose connections are all in use."""

import contextlib
import functools

import pytest
from django.core.cache import caches
from django.test import override_settings

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance.exclusion import ExclusionCases
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.harness.fixtures import Fixtures, until_someone_waits
from testproject.redis_server import RedisServer
from tests.conformance.transports import OwnAuthority
from tests.support.sentinel import SERVICE, Sentinel
from tests.support.service import revive
from tests.support.tls import TlsRedis

pytest.importorskip("django_redis")


class OnCache:
    """The locks are on the cache that ``cache`` configures."""

    @pytest.fixture
    def new_backend(self, cache):
        location, options = cache
        configured = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location, "OPTIONS": options}
        with override_settings(CACHES={"default": configured}):
            yield functools.partial(RedisBackend, "cache:default", node_timeout=10, history=False)
            caches["default"].client.get_client().connection_pool.disconnect()


class TestTls(OwnAuthority, OnCache, ExclusionCases):
    """Connections of asyncio, which are not the cache's, use TLS, too."""

    @pytest.fixture
    def cache(self, running):
        server = running(TlsRedis)
        revive(server)
        return server.url, {}


class TestSentinels(OnCache, ExclusionCases):
    """The cache finds its server through Sentinels."""

    @pytest.fixture
    def cache(self, running):
        group = running(Sentinel)
        group.heal()
        return f"redis://{SERVICE}/0", {
            "CLIENT_CLASS": "django_redis.client.SentinelClient",
            "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
            "SENTINELS": [("127.0.0.1", sentinel.port) for sentinel in group.sentinels],
        }

    def test_follows_a_failover(self, running, client, name):
        """After a failover locks are granted by the new master."""
        with client.lock(name):
            pass
        running(Sentinel).failover()
        with client.lock(name, blocking_timeout=TEST_TIMEOUT):
            pass


class InUse(Fixtures):
    """A pool of two connections, and two waiters."""

    def test_waiters_leave_connections_to_holders(self, onlooker, client, name, spawn):
        """Waiters do not occupy the pool, so that holders can renew, release and hand over."""
        handles = [client.lock(f"{name}:{number}") for number in range(2)]
        for handle in handles:
            assert handle.acquire()
        waiting = []
        for handle in handles:  # one after another: what is asked at the same time may well be too much for the pool
            waiting.append(spawn(client.lock(handle.name).acquire, timeout=TEST_TIMEOUT))
            until_someone_waits(onlooker, handle.name)
        for handle in handles:
            handle.extend()
            handle.release()
        assert [waiter.result(TEST_TIMEOUT) for waiter in waiting] == [True, True]

    @pytest.fixture
    def server(self, running):
        server = running(RedisServer)
        revive(server)
        return server

    @pytest.fixture
    def onlooker(self, server):
        with contextlib.closing(RedisBackend(server.url, node_timeout=10)) as onlooker:
            yield onlooker


class TestInUse(OnCache, InUse):
    """The pool of a cache."""

    @pytest.fixture
    def cache(self, server):
        return server.url, {"CONNECTION_POOL_KWARGS": {"max_connections": 2}}


class TestUrlInUse(InUse):
    """Our own pool, limited in LOCATION."""

    @pytest.fixture
    def new_backend(self, server):
        return functools.partial(RedisBackend, f"{server.url}?max_connections=2", node_timeout=10, history=False)
