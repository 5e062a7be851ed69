"""The whole conformance suite on one Redis, over TCP."""

import functools

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance import BackendConformance
from testproject.redis_server import RedisServer
from tests.support.service import revive

# Names are unique and nothing else is looked at: the server is shared with all other tests, and not emptied.


class TestRedis(BackendConformance):
    @pytest.fixture
    def new_backend(self, running):
        server = running(RedisServer)
        revive(server)
        # On a machine with much to do a server may take its time: that is not what is tested here.
        return functools.partial(RedisBackend, server.url, node_timeout=10)
