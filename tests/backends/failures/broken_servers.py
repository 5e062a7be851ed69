"""Redis servers that a test may stop or break."""

import contextlib

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.fixtures import Fixtures, eventually

SOON = 12  # seconds, where the node timeout is half of one: not a hang, and less than a lease


def served(ask, *args):
    """Return the reply to the question when a busy server gives it within the node timeout."""

    def answer():
        with contextlib.suppress(LockUnavailable):
            return [ask(*args)]

    answers = eventually(answer)
    assert answers, "no reply in time"
    return answers[0]


def is_free(lock):
    return eventually(lambda: served(lock.acquire, False), SOON)


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
        return lambda url=url, **options: RedisBackend(url, **{"node_timeout": self.node_timeout, **options})
