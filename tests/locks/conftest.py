"""A backend on one Redis."""

import contextlib

import pytest

from django_redlock.backends.redis import RedisBackend


@pytest.fixture
def backend(redis_url):
    """A backend on the session's Redis."""
    with contextlib.closing(RedisBackend(redis_url, node_timeout=20)) as backend:
        yield backend
