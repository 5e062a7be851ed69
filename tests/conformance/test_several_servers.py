"""The conformance suite on five nodes and on a primary with a replica, but what `test_redlock` has."""

import functools

import pytest

from django_redlock.backends.replica import ReplicaBackend
from django_redlock.testing.conformance import TransportConformance
from django_redlock.testing.fairness import FairCases
from django_redlock.testing.handles import HandleCases
from django_redlock.testing.inspection import InspectionCases
from django_redlock.testing.interruptions import ForkCases, InterruptionCases
from django_redlock.testing.kinds import KindCases
from django_redlock.testing.multilocks import MultilockCases
from django_redlock.testing.readwrite import ReadWriteCases
from django_redlock.testing.reentrant import ReentrantCases
from django_redlock.testing.semaphores import SemaphoreCases
from django_redlock.testing.sharing import SharedHandleCases
from django_redlock.testing.stripes import StripedCases
from tests.conformance.several_servers import Following
from tests.conformance.test_redlock import OnRedlock


class TestRedlockAtLarge(
    OnRedlock,
    HandleCases,
    InspectionCases,
    InterruptionCases,
    ForkCases,
    KindCases,
):
    """What its users see, and what happens to them."""


class TestRedlockKinds(
    OnRedlock, ReentrantCases, SemaphoreCases, ReadWriteCases, StripedCases, MultilockCases, SharedHandleCases
):
    """The other kinds of locks, with votes of their own."""


class TestReplica(
    TransportConformance,
    FairCases,
    ReentrantCases,
    SemaphoreCases,
    ReadWriteCases,
    StripedCases,
    MultilockCases,
):
    """On a primary whose replica must confirm."""

    @pytest.fixture
    def new_backend(self, running):
        return functools.partial(ReplicaBackend, running(Following).primary.url, node_timeout=2)
