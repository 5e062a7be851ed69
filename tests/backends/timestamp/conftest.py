"""Older clients, and the backend that shares locks with them."""

import functools
import time

import pytest

from django_redlock.backends.timestamp import TimestampBackend
from tests.backends.timestamp.old_client import OldClient, OlderClient


@pytest.fixture
def redis(redis_server):
    with redis_server.client(decode_responses=True) as client:
        yield client


@pytest.fixture(params=["s", "ms"])
def unit(request):
    return request.param


@pytest.fixture
def backend(redis_url, unit):
    backend = TimestampBackend(redis_url, unit=unit, key_format="{name}", node_timeout=10)
    yield backend
    backend.close()


@pytest.fixture
def old(redis, unit):
    """`old()`: a client of old code that wants the key `stock`."""
    return functools.partial(OldClient, redis, "stock", unit=unit)


@pytest.fixture
def older(redis, unit):
    """`older()`: a client of the protocol before GETSET."""
    return functools.partial(OlderClient, redis, "stock", unit=unit)


@pytest.fixture
def dead(old):
    """A client of old code that has died, and whose lock has expired."""
    client = old(clock=lambda: time.time() - 100)
    assert client.take()
