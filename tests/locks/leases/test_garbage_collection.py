"""A handle without references is collected at once and not renewed; no error keeps a reference to it."""

import contextlib
import gc
import weakref

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.proxy import Proxy


@pytest.fixture(autouse=True)
def no_collection():
    """No collection of reference cycles during the test."""
    gc.disable()
    yield
    gc.enable()


def taken_and_dropped(backend, name):
    lock = backend.lock(name, ttl=60)
    assert lock.acquire(False)
    assert lock.extend()
    return weakref.ref(lock)


def test_a_node_is_gone(start, unique):
    """A handle is collected at once, although a node was not reachable."""
    group = start(Group([RedisServer() for _ in range(3)]))
    backend = start(contextlib.closing(RedlockBackend([server.url for server in group.servers], node_timeout=10)))
    backend.arm()
    with backend.lock(unique):
        pass
    group.servers[2].kill()
    assert taken_and_dropped(backend, unique)() is None


def test_the_connection_was_closed(start, redis_server, unique):
    """A handle is collected at once, although its connection was closed and its request repeated."""
    proxy = start(Proxy(redis_server.url))
    backend = start(contextlib.closing(RedisBackend(proxy.url, node_timeout=10)))
    with backend.lock(unique):
        pass
    proxy.cut()
    assert taken_and_dropped(backend, unique)() is None
