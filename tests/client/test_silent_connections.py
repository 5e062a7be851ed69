"""Connections that were dropped without FIN or RST, as firewalls and NAT do, and waits that signals interrupt."""

import contextlib
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.client import pool
from django_redlock.errors import LockUnavailable
from testproject.redis_server import RedisServer
from tests.support.locks import connected
from tests.support.proxy import Proxy

TIMEOUT = 1.0  # seconds, the node timeout
MARGIN = 5.0  # seconds for a busy machine


@pytest.fixture
def backend(proxy):
    with contextlib.closing(RedisBackend(proxy.url, node_timeout=TIMEOUT, history=False)) as backend:
        yield backend


def test_idle_connection(proxy, backend, unique, client_of):
    """An acquire and a release on an idle connection that was dropped silently succeed on a new connection."""
    client = client_of(backend)
    for _ in range(2):
        lock = client.lock(unique, ttl=60)
        assert lock.acquire(timeout=0)
        proxy.forget()
        start = time.monotonic()
        lock.release()
        assert time.monotonic() - start < 2 * TIMEOUT + MARGIN
        proxy.forget()
        assert client.lock(unique, ttl=60).acquire(timeout=0)
        proxy.forget()
        backend.force_release(unique)


def test_many_threads(proxy, backend, unique):
    """All threads that use dropped connections at the same time get their locks."""
    together = threading.Barrier(10)

    def take(number):
        together.wait(30)
        with backend.lock(f"{unique}:{number}", ttl=60, blocking_timeout=0):
            together.wait(30)

    for _ in range(2):
        with ThreadPoolExecutor(10) as threads:
            list(threads.map(take, range(10)))
        proxy.forget()


def test_hung_server(redis_server, proxy, backend, unique):
    """A server that hangs costs one node timeout more after it was idle, and one afterwards."""
    with backend.lock(unique):
        pass
    proxy.drop()
    for limit in 2 * TIMEOUT, TIMEOUT:
        start = time.monotonic()
        with pytest.raises(LockUnavailable, match="no reply in time"):
            backend.lock(unique).acquire(timeout=0)
        assert limit - 0.1 < time.monotonic() - start < limit + MARGIN


def test_old_idle_connection_is_replaced(proxy, backend, unique, monkeypatch):
    """A connection that was idle for longer than a minute is not used again."""
    for count in 1, 2:
        with backend.lock(unique, ttl=60):
            assert proxy.accepted == count
        monkeypatch.setattr(time, "monotonic", lambda real=time.monotonic: real() + pool.MAX_IDLE_SECONDS)


def quorum_client(client_of, proxies):
    options = {"ttl": 60, "max_ttl": 60, "node_timeout": TIMEOUT, "quarantine": False, "history": False}
    return connected(client_of(RedlockBackend([proxy.url for proxy in proxies], **options)))


@pytest.mark.parametrize("dropped", [2, 3])
def test_quorum(proxies, unique, client_of, dropped):
    """A quorum acquires, extends and releases on new connections after most of the idle ones were dropped silently."""
    client = quorum_client(client_of, proxies)

    def timed(request):
        for proxy in proxies[:dropped]:
            proxy.forget()
        start = time.monotonic()
        result = request()
        assert time.monotonic() - start < 2 * TIMEOUT + MARGIN
        return result

    lock = client.lock(unique, auto_renew=False)
    assert timed(lambda: lock.acquire(timeout=0))
    timed(lock.extend)
    timed(lock.release)
    assert client.lock(unique).acquire(timeout=0)


def test_sentinel(sentinel, start, unique, client_of):
    """A master behind Sentinels serves on a new connection after the idle ones were dropped silently."""
    proxies = {server.port: start(Proxy(server.url)) for server in sentinel.servers}
    remap = {("127.0.0.1", port): ("127.0.0.1", proxy.port) for port, proxy in proxies.items()}
    client = client_of(RedisBackend(sentinel.url, address_remap=remap, node_timeout=TIMEOUT, history=False))
    for _ in range(2):
        lock = client.lock(unique, ttl=60)
        assert lock.acquire(timeout=0)
        for request in lock.extend, lock.release:
            proxies[sentinel.master.port].forget()
            begun = time.monotonic()
            request()
            assert time.monotonic() - begun < 2 * TIMEOUT + MARGIN
        proxies[sentinel.master.port].forget()


@pytest.mark.parametrize("kind", ["plain", "waiting"])
def test_timer_signals(running, unique, kind):
    """A timer signal every 0.02 s does not prolong the wait for a server that has stopped."""
    server = running(RedisServer)
    with contextlib.closing(RedisBackend(server.url, node_timeout=TIMEOUT, history=False)) as backend:
        if kind == "waiting":
            other = backend.lock(unique, ttl=60)
            other.acquire()
        ticks = []
        before = signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        stopper = threading.Timer(0.5 if kind == "waiting" else 0, server.pause)
        stopper.start()
        if kind == "plain":
            stopper.join()
        try:
            start = time.monotonic()
            with pytest.raises(LockUnavailable):
                backend.lock(unique).acquire(timeout=2 if kind == "waiting" else 0)
            assert time.monotonic() - start < 2 + 2 * TIMEOUT + MARGIN
            assert len(ticks) > 10
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            stopper.join()
            server.resume()
