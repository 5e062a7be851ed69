"""A credential provider that raises errors of another library, or does not return in time."""

import contextlib
import threading

import pytest
from redis.credentials import CredentialProvider

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from tests.support.locks import acquired
from tests.support.service import poll


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
def service():
    service = TokenService()
    yield service
    service.answers.set()


@pytest.fixture(params=[RedisBackend, RedlockBackend])
def new_backend(request, redis_url, service):
    """`new_backend(**options)`: a backend whose connections ask the service."""
    places = [redis_url.replace("/0", f"/{db}") for db in range(3)]
    location = places if request.param is RedlockBackend else places[0]
    options = {"ttl": 60, "node_timeout": 10, "quarantine": False, "history": False, "credential_provider": service}
    return lambda **more: request.param(location, **{**options, **more})


def test_errors(service, new_backend, client_of, unique):
    """An error of the provider makes the store unavailable until the provider returns credentials."""
    service.error = RuntimeError("the token service is down")
    lock = client_of(new_backend()).lock(unique)
    with pytest.raises(LockUnavailable, match="the token service is down"):
        lock.acquire(timeout=0)
    service.error = None
    poll(lambda: acquired(lock), timeout=60, what="a lock")
    lock.release()


@pytest.mark.parametrize("new_backend", [RedisBackend], indirect=True)
@pytest.mark.parametrize("fault", ["error", "hangs"])
def test_waiters(service, new_backend, unique, fault):
    """A waiter that needs a connection gets an error if the provider fails or does not return."""
    with contextlib.closing(new_backend(node_timeout=3)) as backend, backend.lock(unique):
        backend.close()  # the idle connections
        if fault == "error":
            service.error = RuntimeError("the token service is down")
        else:
            service.answers.clear()
        with pytest.raises(LockUnavailable):
            backend.lock(unique).acquire(timeout=60)
