"""The conformance suite on a server that refuses keys that are not in KEYS."""

import functools

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance import BackendConformance
from testproject.redis_server import RedisServer
from tests.scripts.strict import be_strict
from tests.support.service import revive


class TestDeclaredKeys(BackendConformance):
    @pytest.fixture
    def new_backend(self, running, monkeypatch):
        server = running(RedisServer)
        revive(server)
        be_strict(monkeypatch)
        return functools.partial(RedisBackend, server.url, node_timeout=10)
