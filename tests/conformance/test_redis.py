"""The conformance suite on one Redis: of two versions, over TCP, TLS, a unix socket, behind Sentinels, as a Cluster."""

import functools

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance import BackendConformance
from testproject.redis_server import RedisServer
from tests.support.cluster import Cluster
from tests.support.older_redis import OlderRedis
from tests.support.sentinel import Sentinel
from tests.support.service import revive
from tests.support.tls import TlsRedis

# Names are unique and nothing else is looked at: the servers are shared with all other tests, and not emptied.


@pytest.fixture(scope="module")
def redis(running):
    server = running(RedisServer)
    revive(server)
    return server


@pytest.fixture(scope="module")
def redis_with_tls(running):
    server = running(TlsRedis)
    revive(server)
    return server


@pytest.fixture(scope="module")
def sentinels(running):
    group = running(Sentinel)
    group.heal()
    return group


@pytest.fixture(scope="module")
def masters(running):
    cluster = running(Cluster)
    cluster.heal()
    return cluster


class RedisConformance(BackendConformance):
    """What is the same wherever the server is."""

    @pytest.fixture
    def new_backend(self, location):
        # On a machine with much to do a server may take its time: that is not what is tested here.
        return functools.partial(RedisBackend, location, node_timeout=10)


class TestRedis(RedisConformance):
    @pytest.fixture
    def location(self, redis):
        return redis.url


class TestOlderRedis(RedisConformance):
    @pytest.fixture
    def location(self, running):
        return running(OlderRedis).url


class TestUnixSocket(RedisConformance):
    @pytest.fixture
    def location(self, redis):
        return redis.unix_url


class TestTls(RedisConformance):
    @pytest.fixture
    def location(self, redis_with_tls):
        return redis_with_tls.url


class TestSentinel(RedisConformance):
    @pytest.fixture
    def location(self, sentinels):
        return sentinels.url


class TestCluster(RedisConformance):
    @pytest.fixture
    def location(self, masters):
        return masters.url
