"""The conformance suite on several nodes, and on a primary with a replica."""

import functools

import pytest
from django.core.cache import caches
from django.test import override_settings

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.testing.conformance import BackendConformance
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.replicas import Replicated, wait_in_sync

PREFIXES = "redlock", "another"  # each has a quarantine of its own


class FiveNodes(Group):
    """Five nodes in service."""

    def __init__(self):
        super().__init__(RedisServer() for _ in range(5))

    def form(self):
        put_in_service(functools.partial(RedlockBackend, [server.url for server in self.servers], node_timeout=2))


class Following(Replicated):
    """A primary in service with a replica in sync."""

    def form(self):
        super().form()
        wait_in_sync(self.primary, self.replicas)
        put_in_service(functools.partial(ReplicaBackend, self.primary.url, node_timeout=2))


def put_in_service(new_backend):
    for prefix in PREFIXES:
        backend = new_backend(key_prefix=prefix)
        assert set(backend.arm().values()) == {"armed"}
        backend.close()


class TestRedlock(BackendConformance):
    """On a majority of five nodes."""

    @pytest.fixture
    def new_backend(self, running):
        places = [server.url for server in running(FiveNodes).servers]
        return functools.partial(RedlockBackend, places, node_timeout=2, ttl=3)  # a vote that is left over ends with it


class SixOfSeven(Group):
    """Seven nodes, six of which are in service; the last has been killed. Four permits need the votes of six."""

    def __init__(self):
        super().__init__(RedisServer() for _ in range(7))

    def form(self):
        put_in_service(functools.partial(RedlockBackend, [server.url for server in self.servers], node_timeout=2))
        self.servers[-1].kill()


class TestPools(BackendConformance):
    """On nodes with few connections, limited by LOCATION or by caches, one of which is down."""

    @pytest.fixture
    def new_backend(self, running):
        pytest.importorskip("django_redis")
        limit, servers = 4, running(SixOfSeven).servers
        places = [f"{server.url}?max_connections={limit}" for server in servers[:4]]
        configured = {
            f"node{server.port}": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": server.url,
                "OPTIONS": {"CONNECTION_POOL_KWARGS": {"max_connections": limit}},
            }
            for server in servers[4:]
        }
        with override_settings(CACHES={"default": next(iter(configured.values())), **configured}):
            places += [f"cache:{alias}" for alias in configured]
            yield functools.partial(RedlockBackend, places, node_timeout=2, ttl=3)
            for alias in configured:
                caches[alias].client.get_client().connection_pool.disconnect()

    def test_health(self, client):
        """The one that is down says so."""
        assert [row["ok"] for row in client.health()] == [True] * 6 + [False]


class TestReplica(BackendConformance):
    """On a primary whose replica must confirm."""

    @pytest.fixture
    def new_backend(self, running):
        return functools.partial(ReplicaBackend, running(Following).primary.url, node_timeout=2)
