"""The relatives of a mutex on several nodes: the cases of the suite that are about them."""

import functools

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.testing.fairness import FairCases
from django_redlock.testing.multilocks import MultilockCases
from django_redlock.testing.readwrite import ReadWriteCases
from django_redlock.testing.reentrant import ReentrantCases
from django_redlock.testing.semaphores import SemaphoreCases
from django_redlock.testing.sharing import SharedHandleCases
from django_redlock.testing.stripes import StripedCases
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.replicas import Replicated, wait_in_sync


class FiveNodes(Group):
    """Five nodes in service."""

    def __init__(self):
        super().__init__(RedisServer() for _ in range(5))

    def form(self):
        backend = RedlockBackend([server.url for server in self.servers], node_timeout=2)
        assert set(backend.arm().values()) == {"armed"}
        backend.close()


class Following(Replicated):
    """A primary in service with a replica in sync."""

    def form(self):
        super().form()
        wait_in_sync(self.primary, self.replicas)
        backend = ReplicaBackend(self.primary.url, node_timeout=2)
        assert set(backend.arm().values()) == {"armed"}
        backend.close()


class TestRedlock(
    FairCases, ReentrantCases, SemaphoreCases, ReadWriteCases, StripedCases, MultilockCases, SharedHandleCases
):
    """On a majority of five nodes."""

    @pytest.fixture
    def new_backend(self, running):
        places = [server.url for server in running(FiveNodes).servers]
        return functools.partial(RedlockBackend, places, node_timeout=2, ttl=3)  # a vote that is left over ends with it


class TestReplica(
    FairCases, ReentrantCases, SemaphoreCases, ReadWriteCases, StripedCases, MultilockCases, SharedHandleCases
):
    """On a primary whose replica must confirm."""

    @pytest.fixture
    def new_backend(self, running):
        return functools.partial(ReplicaBackend, running(Following).primary.url, node_timeout=2)
