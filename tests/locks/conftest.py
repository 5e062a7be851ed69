"""Backends on separate nodes, as in `tests.backends`, and on one."""

import contextlib

import pytest

from django_redlock.backends.redis import RedisBackend
from tests.backends.conftest import client_of, servers, two, woken_only

__all__ = ["client_of", "servers", "two", "woken_only"]


@pytest.fixture
def backend(redis_url):
    """A backend on the session's Redis."""
    with contextlib.closing(RedisBackend(redis_url, node_timeout=20)) as backend:
        yield backend
