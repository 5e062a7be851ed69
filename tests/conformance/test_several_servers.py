"""The conformance suite on five nodes and on a primary with a replica, except for the cases in `test_redis`."""

import functools

import pytest
from django.core.cache import caches
from django.test import override_settings

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.testing.conformance import TransportConformance
from django_redlock.testing.conformance.each_kind import KindCases
from django_redlock.testing.conformance.hand_offs import HandOffCases
from django_redlock.testing.conformance.handles import HandleCases
from django_redlock.testing.conformance.inspection import InspectionCases
from django_redlock.testing.conformance.interruptions import ForkCases, InterruptionCases
from django_redlock.testing.conformance.kinds.fairness import FairCases
from django_redlock.testing.conformance.kinds.multilocks import MultilockCases
from django_redlock.testing.conformance.kinds.readwrite import ReadWriteCases
from django_redlock.testing.conformance.kinds.reentrant import ReentrantCases
from django_redlock.testing.conformance.kinds.semaphores import SemaphoreCases
from django_redlock.testing.conformance.kinds.stripes import StripedCases
from django_redlock.testing.conformance.periods import PeriodCases
from django_redlock.testing.conformance.shared_handles import SharedHandleCases
from testproject.redis_server import RedisServer
from tests.conformance.several_servers import Following, OnRedlock, put_in_service
from tests.conformance.transports import SameBytes
from tests.support.group import Group


class TestRedlockAtLarge(
    OnRedlock,
    HandleCases,
    InspectionCases,
    InterruptionCases,
    ForkCases,
    KindCases,
):
    """Inspection, health, waiting and losses on a majority."""


class TestRedlockKinds(
    OnRedlock,
    ReentrantCases,
    SemaphoreCases,
    ReadWriteCases,
    StripedCases,
    MultilockCases,
    SharedHandleCases,
    HandOffCases,
    PeriodCases,
):
    """The other kinds of locks, each with its own quorum."""


class SixOfSeven(Group):
    """Seven nodes, six of which are in service; the last has been killed. Four permits need the votes of six."""

    def __init__(self):
        super().__init__(RedisServer() for _ in range(7))

    def form(self):
        put_in_service(functools.partial(RedlockBackend, [server.url for server in self.servers], node_timeout=10))
        self.servers[-1].kill()


class TestPools(SameBytes, TransportConformance, SemaphoreCases, ReadWriteCases, StripedCases, MultilockCases):
    """Nodes with limited connections, in LOCATION or in caches, one of which is down. `TestRedlockAtLarge` has the
    cases of names and patterns on several nodes.
    """

    short = 0.2
    lacks = ("fair",)

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
            yield functools.partial(RedlockBackend, places, node_timeout=5, ttl=6)
            for alias in configured:
                caches[alias].client.get_client().connection_pool.disconnect()

    def test_health(self, client):
        """health() reports the node that is down."""
        assert [row["ok"] for row in client.health()] == [True] * 6 + [False]


class TestReplica(
    TransportConformance,
    FairCases,
    ReentrantCases,
    SemaphoreCases,
    ReadWriteCases,
    StripedCases,
    MultilockCases,
    HandOffCases,
    PeriodCases,
):
    """The locks are on a primary whose replica must confirm."""

    short = 0.2

    @pytest.fixture
    def new_backend(self, running):
        # A replica that the machine stops for a moment must not count as gone: that is not what is tested here.
        return functools.partial(ReplicaBackend, running(Following).primary.url, node_timeout=10, lag=30)
