"""The stores of the records."""

import contextlib

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.replica import ReplicaBackend


@pytest.fixture
def redis_store(redis_server):
    with contextlib.closing(RedisBackend(redis_server.unix_url, node_timeout=5)) as store:
        yield store


@pytest.fixture(params=["redis", "memory"])
def store(request, unique):
    """Each store in turn. A test may ask for a `replica`, too."""
    if request.param == "memory":
        return LocMemBackend(unique).task_store()
    if request.param == "redis":
        return request.getfixturevalue("redis_store")
    options = {"node_timeout": 5, "min_replicas": 0, "quarantine": False}
    return ReplicaBackend(request.getfixturevalue("redis_server").unix_url, **options)
