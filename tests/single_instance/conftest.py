"""The stores of the records."""

import contextlib

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend


@pytest.fixture
def redis_store(redis_server):
    with contextlib.closing(RedisBackend(redis_server.unix_url, node_timeout=5)) as store:
        yield store


@pytest.fixture(params=["redis", "memory"])
def store(request, unique):
    """Each store in turn."""
    return request.getfixturevalue("redis_store") if request.param == "redis" else LocMemBackend(unique).task_store()
