"""Exclusion and leases on a majority of five nodes."""

import functools

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.testing.conformance.exclusion import ExclusionCases
from django_redlock.testing.conformance.leases import LeaseCases
from tests.conformance.several_servers import FiveNodes


class OnRedlock:
    """The locks are on five nodes."""

    short = 0.2
    lacks = ("fair",)

    @pytest.fixture
    def new_backend(self, running):
        places = [server.url for server in running(FiveNodes).servers]
        return functools.partial(RedlockBackend, places, node_timeout=5, ttl=6)  # a vote that is left over ends with it


class TestRedlock(OnRedlock, ExclusionCases, LeaseCases):
    pass
