"""Locks on the connections of a cache: django-redis, Django's own, django-valkey."""

import contextlib
import functools

import pytest
from django.core.cache import caches
from django.test import override_settings

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance import TransportConformance
from django_redlock.testing.conformance.exclusion import ExclusionCases
from testproject.redis_server import RedisServer
from tests.conformance.transports import SameBytes

pytest.importorskip("django_redis")


POOLS = {
    "default": {},
    "decoding": {"decode_responses": True},
    "bounded": {"socket_timeout": 5, "health_check_interval": 1, "protocol": 3},
}
OTHERS = {
    "django": "django.core.cache.backends.redis.RedisCache",
    "valkey": "django_valkey.cache.ValkeyCache",
}


@pytest.fixture(scope="module", autouse=True)
def configured_caches(running):
    """A cache for each kind of pool, each on a separate database: django-redis has one pool for a URL."""
    url = running(RedisServer).url
    configured = {
        alias: {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": url.replace("/0", f"/{number}"),
            "OPTIONS": {"CONNECTION_POOL_KWARGS": pool},
        }
        for number, (alias, pool) in enumerate(POOLS.items())
    }
    configured |= {
        alias: {"BACKEND": backend, "LOCATION": url.replace("redis:", "valkey:" if alias == "valkey" else "redis:")}
        for alias, backend in OTHERS.items()
    }
    with override_settings(CACHES=configured):
        yield
        for alias in POOLS:
            caches[alias].client.get_client().connection_pool.disconnect()


class OnCache:
    """The locks are on the connections of a cache."""

    alias = "default"

    @pytest.fixture
    def new_backend(self):
        return functools.partial(RedisBackend, f"cache:{self.alias}", node_timeout=10)


class TestCache(SameBytes, OnCache, TransportConformance):
    """A cache in its common configuration."""


class TestDecodingCache(OnCache, ExclusionCases):
    """A cache whose connections turn replies into str."""

    alias = "decoding"


class TestBoundedCache(OnCache, ExclusionCases):
    """A cache whose connections time out, check their health and speak RESP 3."""

    alias = "bounded"


class TestDjangoCache(ExclusionCases):
    """Django's own ``RedisCache``."""

    @pytest.fixture
    def new_backend(self):
        return functools.partial(RedisBackend, "cache:django", node_timeout=10)


class TestValkeyCache(ExclusionCases):
    """django-valkey, whose library raises errors of its own."""

    @pytest.fixture
    def new_backend(self):
        pytest.importorskip("django_valkey")
        return functools.partial(RedisBackend, "cache:valkey", node_timeout=10)


def test_client_side_caching(redis_server, unique):
    """A cache whose connections cache replies, which needs a server that supports it, provides its settings only."""
    caching = pytest.importorskip("redis.cache")
    options = {"protocol": 3, "cache_config": caching.CacheConfig()}
    configured = {"BACKEND": OTHERS["django"], "LOCATION": redis_server.url, "OPTIONS": options}
    with (
        override_settings(CACHES={"default": configured}),
        contextlib.closing(RedisBackend("cache:default", node_timeout=10, history=False)) as backend,
    ):
        lock = backend.lock(unique)
        assert lock.acquire(blocking=False)
        lock.release()
