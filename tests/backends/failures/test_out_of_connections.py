"""A server without free connections, and a process that can open no more files: a clear error."""

import contextlib
import functools
import resource

import pytest

from django_redlock.backend_registry import build
from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from tests.backends.failures.broken_servers import OwnRedis

LOCATIONS = ["redis://127.0.0.1:1/0", "rediss://127.0.0.1:1/0"]


@contextlib.contextmanager
def no_more_files():
    """Keep this process from opening files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class TestFullServer(OwnRedis):
    """The server closes new connections, with an error about too many clients."""

    @pytest.fixture(params=[RedisBackend, RedlockBackend], ids=["redis", "redlock"])
    def new_backend(self, request, url):
        where = [url] if request.param is RedlockBackend else url
        return functools.partial(request.param, where, node_timeout=10, quarantine=False)

    def test_says_that_it_is_full(self, server, client, new_client, name):
        """The error says that the server has too many clients, even if only the closed connection was seen."""
        with server.client() as admin:
            admin.config_set("maxclients", 1)
            for user in (client, new_client(), new_client()):
                with pytest.raises(LockUnavailable, match="clients") as caught:
                    user.lock(name).acquire(False)
                assert caught.value.__cause__ is not None


@pytest.mark.parametrize("location", LOCATIONS)
def test_no_more_files(location):
    """A process that can't open files gets LockUnavailable, from the first backend on."""
    entry = {"BACKEND": f"{RedisBackend.__module__}.{RedisBackend.__name__}", "LOCATION": location}
    with no_more_files(), pytest.raises(LockUnavailable, match="Too many open files") as caught:
        build("default", entry).lock("x").acquire(False)
    assert caught.value.__cause__ in caught.value.errors.values()
