"""A Redis that replies but does not serve: it runs a long script, or still loads its data."""

import contextlib
import threading

import pytest
import redis

from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.service import poll


def says(word, client):
    try:
        client.get("x")
    except redis.RedisError as error:
        return word in str(error)
    return False


def test_busy(own_redis, client_of, unique):
    """A busy server raises LockUnavailable at once, and a release that failed is repeated later."""
    server = own_redis("--lua-time-limit", "20")
    client = client_of(RedisBackend(server.url, node_timeout=10))
    held = client.lock(unique)
    assert held.acquire()
    with server.client() as stuck, server.client() as admin:
        loop = threading.Thread(target=_forever, args=[stuck], daemon=True)
        loop.start()
        poll(lambda: says("BUSY", admin), timeout=TEST_TIMEOUT, what="a server that is busy")
        with pytest.raises(LockUnavailable, match="BUSY"):
            client.lock(unique + "other").acquire(timeout=TEST_TIMEOUT)
        with pytest.raises(LockUnavailable, match="BUSY"):
            held.release()
        admin.script_kill()
        loop.join(TEST_TIMEOUT)
        with client.lock(unique + "other"):
            pass
        poll(lambda: not admin.exists(f"redlock:{{{unique}}}"), timeout=TEST_TIMEOUT, what="the release")


def _forever(client):
    with contextlib.suppress(redis.RedisError):
        client.eval("while true do end", 0)


def test_loading(own_redis, client_of, unique):
    """A server that loads its data raises LockUnavailable at once, and serves when the data is loaded."""
    server = own_redis("--save", "1000 1000", "--loading-process-events-interval-bytes", "1024")
    with server.client() as admin:
        admin.eval("for i = 1, 10000 do redis.call('SET', 'k' .. i, string.rep('x', 100)) end", 0)
        admin.save()
        server.kill()
        server.extra_args = (*server.extra_args, "--key-load-delay", "600")
        starting = threading.Thread(target=server.start)
        starting.start()
        client = client_of(RedisBackend(server.url, node_timeout=10))
        poll(lambda: says("load", admin), timeout=TEST_TIMEOUT, what="a server that loads")
        with pytest.raises(LockUnavailable, match="loading the dataset"):
            client.lock(unique).acquire(timeout=TEST_TIMEOUT)
        starting.join(2 * TEST_TIMEOUT)
        with client.lock(unique):
            pass
