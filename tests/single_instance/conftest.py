"""The stores of the records."""

from __future__ import annotations

import contextlib

import pytest

from django_redlock.backends.redis import RedisBackend


@pytest.fixture
def redis_store(redis_server):
    with contextlib.closing(RedisBackend(redis_server.unix_url, node_timeout=5)) as store:
        yield store
