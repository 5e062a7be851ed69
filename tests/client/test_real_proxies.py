"""Locks behind twemproxy, which knows no BLPOP, and behind haproxy, which closes idle connections."""

import contextlib
import threading

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.proxies import HAProxy, Twemproxy

FEW = 120  # commands of one waiter in 2 s; a storm sends thousands


@pytest.fixture
def server(own_redis):
    return own_redis()


@pytest.mark.parametrize("fair", [False, True], ids=["lock", "fair"])
def test_twemproxy(server, start, client_of, unique, fair):
    """A waiter polls with growing pauses, over few connections, and gets the lock when it is released."""
    backend = RedisBackend(start(Twemproxy(server)).url, node_timeout=2, history=False)
    client, lock = client_of(backend), backend.lock(unique, fair=fair)
    for _ in range(3):
        with backend.lock(unique, fair=fair):
            pass
    lock.acquire()
    waiter = client.lock(unique, fair=fair)
    with server.client() as admin:
        before = admin.info("stats")
        assert not waiter.acquire(timeout=2)
        after = admin.info("stats")
    assert after["total_commands_processed"] - before["total_commands_processed"] < FEW
    assert after["total_connections_received"] - before["total_connections_received"] < 10
    timer = threading.Timer(0.5, lock.release)
    timer.start()
    assert waiter.acquire(timeout=TEST_TIMEOUT)
    waiter.release()
    timer.join()
    assert not backend.nodes[0].known_pool(None).can_block


def test_haproxy_closes_idle_connections(server, start, unique):
    proxy = start(HAProxy(server))
    with contextlib.closing(RedisBackend(proxy.url, node_timeout=2, history=False)) as backend:
        with backend.lock(unique, ttl=30):
            pass
        lock = backend.lock(unique, ttl=30)
        lock.acquire()
        timer = threading.Timer(3 * HAProxy.idle / 1000, lock.release)
        timer.start()
        with backend.lock(unique, ttl=30, blocking_timeout=TEST_TIMEOUT):
            pass
        timer.join()
