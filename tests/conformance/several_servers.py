"""Several servers for the session: five nodes, and a primary with a replica."""

import functools

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.replicas import Replicated, wait_in_sync

PREFIXES = "redlock", "another"  # each has a quarantine of its own


class FiveNodes(Group):
    """Five nodes in service."""

    def __init__(self):
        super().__init__(RedisServer() for _ in range(5))

    def form(self):
        put_in_service(functools.partial(RedlockBackend, [server.url for server in self.servers], node_timeout=10))


class Following(Replicated):
    """A primary in service with a replica in sync."""

    def form(self):
        super().form()
        wait_in_sync(self.primary, self.replicas)
        put_in_service(functools.partial(ReplicaBackend, self.primary.url, node_timeout=10))


class OnRedlock:
    """The locks are on five nodes."""

    short = 0.2
    lacks = ("fair",)

    @pytest.fixture
    def new_backend(self, running):
        places = [server.url for server in running(FiveNodes).servers]
        return functools.partial(RedlockBackend, places, node_timeout=5, ttl=6)  # a vote that is left over ends with it


def put_in_service(new_backend):
    for prefix in PREFIXES:
        backend = new_backend(key_prefix=prefix)
        assert set(backend.arm().values()) == {"armed"}
        backend.close()
