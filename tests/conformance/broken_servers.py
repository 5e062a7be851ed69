"""Broken Redis servers for the tests of this folder."""

import functools

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance.harness.fixtures import Fixtures


class OwnRedis(Fixtures):
    """Clients, blocking and asyncio, of a Redis that the test may stop or break."""

    node_timeout = 0.5

    @pytest.fixture
    def server(self, own_redis):
        return own_redis()

    @pytest.fixture
    def url(self, server):
        return server.url

    @pytest.fixture
    def new_backend(self, url):
        return functools.partial(RedisBackend, url, node_timeout=self.node_timeout)
