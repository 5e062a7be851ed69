"""A backend on one Redis, and the places of one or three."""

import contextlib

import pytest

from django_redlock.backends.redis import RedisBackend


@pytest.fixture
def backend(redis_url):
    """A backend on the session's Redis."""
    with contextlib.closing(RedisBackend(redis_url, node_timeout=20)) as backend:
        yield backend


@pytest.fixture(params=["one", "three"])
def places(request):
    """The URLs of one Redis, or of three nodes."""
    if request.param == "one":
        return [request.getfixturevalue("redis_url")]
    return [server.url for server in request.getfixturevalue("servers")]
