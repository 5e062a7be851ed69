"""A credential provider of a cache that raises errors of another library, or does not return in time."""

import contextlib
import threading

import pytest
from django.core.cache import caches
from django.test import override_settings
from redis.credentials import CredentialProvider

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from tests.support.locks import acquired
from tests.support.service import poll

NODES = "node0", "node1", "node2"


class TokenService(CredentialProvider):
    """Returns valid credentials, or raises ``error``, as soon as ``answers`` is set."""

    def __init__(self):
        self.error = None
        self.answers = threading.Event()
        self.answers.set()

    def get_credentials(self):
        assert self.answers.wait(60)
        if self.error:
            raise self.error
        return "default", "any, because the user needs none"


@pytest.fixture
def service(redis_server):
    """The token service of the caches `NODES`."""
    service = TokenService()
    cache = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "OPTIONS": {"credential_provider": service}}
    url = redis_server.url.removesuffix("/0")
    configured = {alias: {**cache, "LOCATION": f"{url}/{db}"} for db, alias in enumerate(NODES)}
    with override_settings(CACHES={"default": configured["node0"], **configured}):
        yield service
        service.answers.set()
        for alias in NODES:
            caches[alias]._cache.get_client().connection_pool.disconnect()


@pytest.fixture(params=[RedisBackend, RedlockBackend])
def backend(request, service):
    options = {"ttl": 60, "node_timeout": 10, "quarantine": False, "history": False}
    places = [f"cache:{alias}" for alias in NODES]
    location = places if request.param is RedlockBackend else places[0]
    return request.param(location, **options)


def test_errors(service, backend, client_of, unique):
    """An error of the provider makes the store unavailable until the provider returns credentials."""
    service.error = RuntimeError("the token service is down")
    lock = client_of(backend).lock(unique)
    with pytest.raises(LockUnavailable, match="the token service is down"):
        lock.acquire(timeout=0)
    service.error = None
    poll(lambda: acquired(lock), timeout=60, what="a lock")
    lock.release()


@pytest.mark.parametrize("fault", ["error", "hangs"])
def test_waiters(service, unique, fault):
    """A waiter that needs a connection gets an error if the provider fails or does not return."""
    with (
        contextlib.closing(RedisBackend("cache:node0", ttl=60, node_timeout=3, history=False)) as backend,
        backend.lock(unique),
    ):
        backend.close()  # the idle connections
        if fault == "error":
            service.error = RuntimeError("the token service is down")
        else:
            service.answers.clear()
        with pytest.raises(LockUnavailable):
            backend.lock(unique).acquire(timeout=60)
