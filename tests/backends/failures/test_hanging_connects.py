"""Connecting ends within the backend's time limits, also with slow name look-ups."""

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockUnavailable
from tests.support.locks import acquired
from tests.support.service import poll

WAIT = 20
REDIS_PY = 5  # seconds after which redis-py gives up connecting, if not told otherwise


@pytest.fixture
def bounded(own_redis) -> Iterator[tuple[RedisBackend, object]]:
    """A backend on a pool of two connections, and its server."""
    server = own_redis()
    with closing(RedisBackend(f"{server.url}?max_connections=2", node_timeout=0.2, history=False)) as backend:
        yield backend, server


def refused_after(backend) -> float:
    start = time.monotonic()
    with pytest.raises(LockUnavailable):
        backend.lock("stock").acquire(timeout=1)
    return time.monotonic() - start


def test_a_stopped_server_behind_a_bounded_pool(bounded):
    """acquire() on a hung server ends after two node timeouts, and the pool is complete when the server resumes."""
    backend, server = bounded
    server.pause()
    try:
        # Once more if the machine was slow: what waits for redis-py does so each time.
        assert any(max(refused_after(backend) for _ in range(3)) < REDIS_PY / 2 for _ in range(3))
    finally:
        server.resume()
    lock = backend.lock("stock")
    poll(lambda: acquired(lock), timeout=WAIT, what="what was given up to be given back")
    lock.release()


@pytest.fixture
def name_server(monkeypatch):
    """An event that ends the look-ups of `redis.example`, which then lead to this machine."""
    answered, look_up = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host, *args, **options):
        if host == "redis.example":
            assert answered.wait(WAIT)
            host = "127.0.0.1"
        return look_up(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield answered
    answered.set()


def test_a_name_that_is_not_looked_up_in_time(name_server, own_redis):
    """A slow name look-up ends the request after the node timeout, and a later connection serves the next request."""
    server = own_redis()
    with closing(RedisBackend(server.url.replace("127.0.0.1", "redis.example"), node_timeout=0.5)) as backend:
        assert refused_after(backend) < WAIT / 4
        name_server.set()
        with server.client() as client:
            poll(lambda: len(client.client_list()) == 2, timeout=WAIT, what="the connection")
        lock = backend.lock("stock")
        poll(lambda: acquired(lock), timeout=WAIT, what="a reply in time")
        lock.release()


@pytest.fixture(params=[1, 2])
def silent_first(request, monkeypatch, redis_server):
    """`redis.example` has several addresses: only a connection to the last, which is a Redis, succeeds or fails."""
    port, look_up = redis_server.port, socket.getaddrinfo
    silent = [f"127.0.0.{number + 2}" for number in range(request.param)]

    def getaddrinfo(host, *args, **options):
        if host != "redis.example":
            return look_up(host, *args, **options)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))
            for address in (*silent, "127.0.0.1")
        ]

    with ExitStack() as sockets:
        for address in silent:
            sockets.enter_context(socket.create_server((address, port), backlog=0))
            for _ in range(4):  # they fill the backlog
                client = sockets.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex((address, port))
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield redis_server.url.replace("127.0.0.1", "redis.example")


def test_the_first_addresses_of_a_name_are_silent(silent_first, unique, client_of):
    """A lock is acquired at the last address of a host name if the others do not answer."""
    lock = client_of(RedisBackend(silent_first, node_timeout=1, history=False)).lock(unique)
    poll(lambda: acquired(lock), timeout=60, what="a lock")
    with suppress(LockUnavailable):  # on a slow machine
        lock.release()


def test_a_soft_time_limit_while_connecting(own_redis):
    """What a signal handler raises while a connection is opened reaches the caller."""

    class SoftTimeLimitExceeded(Exception):
        pass

    def strike(*_):
        raise SoftTimeLimitExceeded

    server = own_redis()
    backend = RedisBackend(f"redis://127.0.0.1:{server.port}/1", node_timeout=WAIT, history=False)
    server.pause()
    before = signal.signal(signal.SIGALRM, strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(SoftTimeLimitExceeded):
            backend.lock("stock").acquire(timeout=0)
    finally:
        signal.signal(signal.SIGALRM, before)
        server.resume()
