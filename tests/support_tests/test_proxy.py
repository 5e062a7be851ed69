"""The proxy that imitates network faults."""

import contextlib
import socket
import threading
import time

import pytest
import redis

from testproject.redis_server import RedisServer
from tests.support.proxy import Proxy
from tests.support.service import poll


@pytest.fixture
def client(proxy):
    with redis.Redis.from_url(proxy.url, socket_timeout=20, retry=None) as client:
        yield client


@pytest.fixture
def hasty(proxy):
    """A client that is connected, and gives up after a second."""
    with redis.Redis.from_url(proxy.url, socket_timeout=1, retry=None) as client:
        connect(client)
        yield client


def connect(client):
    """Ping until there is an answer in time."""

    def answered():
        with contextlib.suppress(redis.TimeoutError):
            return client.ping()
        return False

    poll(answered, timeout=60, what="a connection")


def test_counts_what_passes(proxy, client):
    """Requests and replies pass unchanged and are counted."""
    big = "x" * 300_000
    client.set("key", big)
    assert client.get("key") == big.encode()
    assert (proxy.accepted, proxy.connections) == (1, 1)
    assert min(proxy.bytes["requests"], proxy.bytes["replies"]) > len(big)


def test_dropped_requests_never_arrive(redis_server, proxy, client, hasty):
    """A dropped request is never executed, on old and new connections."""
    proxy.drop("requests")
    with redis.Redis.from_url(proxy.url, socket_timeout=1, retry=None) as newcomer:
        for victim in (hasty, newcomer):
            heard = proxy.bytes["requests"]
            with pytest.raises(redis.TimeoutError):
                victim.incr("count")
            poll(lambda heard=heard: proxy.bytes["requests"] > heard, timeout=20, what="the request")
    proxy.restore()
    assert client.incr("count") == 1


def test_dropped_replies_are_of_requests_that_arrived(redis_server, proxy):
    """A dropped reply leaves the effect of its request, and its connection is closed."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as connection, redis_server.client() as direct:
        connection.sendall(b"PING\r\n")
        assert connection.recv(100) == b"+PONG\r\n"
        replied = proxy.bytes["replies"]
        proxy.drop("replies")
        connection.sendall(b"INCR count\r\n")
        poll(lambda: direct.get("count") == b"1", timeout=20, what="the effect")
        poll(lambda: proxy.bytes["replies"] > replied, timeout=20, what="the reply")
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as newcomer:
            heard = proxy.bytes["requests"]
            newcomer.sendall(b"INCR count\r\n")
            poll(lambda: proxy.bytes["requests"] > heard, timeout=20, what="a request that would not have got through")
            proxy.restore()
        assert connection.recv(100) == b""
        assert direct.get("count") == b"1"


def test_held_requests_arrive_late(redis_server, proxy, hasty):
    """A held request is delivered after the client has given up."""
    proxy.hold("requests")
    with pytest.raises(redis.TimeoutError):
        hasty.set("late", "1")
    with redis_server.client() as direct:
        assert direct.get("late") is None
        proxy.restore()
        poll(lambda: direct.get("late") == b"1", timeout=20, what="the late request")


def test_delay_goes_both_ways(proxy, client):
    """A delay applies in each direction."""
    client.ping()
    proxy.delay(0.05)
    began = time.monotonic()
    client.ping()
    assert time.monotonic() - began >= 0.1


def test_cut_and_refuse(proxy, client):
    """cut() closes connections and accepts new ones until they are refused."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as connection:
        poll(lambda: proxy.connections == 1, timeout=20, what="a connection")
        proxy.cut()
        assert connection.recv(1) == b""
    assert client.ping()
    proxy.refuse()
    assert client.ping()
    proxy.cut()
    client.connection_pool.disconnect()  # it may not have noticed yet
    with pytest.raises(redis.ConnectionError, match="refused"):
        client.ping()
    proxy.restore()
    assert client.ping()


def test_loses_one_reply(redis_server, proxy, client):
    """The chosen request is executed, its reply is lost, its connection is closed, and all others are served."""
    client.set("other", "1")
    lost = proxy.lose_next_reply(b"INCR")
    assert client.get("other") == b"1"
    assert not lost.is_set()
    with pytest.raises(redis.ConnectionError):
        client.incr("count")
    assert lost.wait(20)
    assert client.incr("count") == 2


def test_leads_elsewhere(proxy, own_redis):
    """After `retarget()` the same address leads to another server."""
    with redis.Redis.from_url(proxy.url) as client:  # it repeats what finds its connection closed
        client.set("key", "first")
        proxy.retarget(own_redis().url)
        assert client.get("key") is None


def test_a_server_that_is_down(own_redis, start):
    """A proxy in front of a server that is down closes connections."""
    server = own_redis()
    proxy = start(Proxy(server.url))
    server.kill()
    with redis.Redis.from_url(proxy.url, retry=None) as client, pytest.raises(redis.ConnectionError):
        client.ping()


def own_threads(proxy):
    """Return the threads of this proxy. Those of other tests come and go."""
    return [each for each in threading.enumerate() if getattr(getattr(each, "_target", None), "__self__", 0) is proxy]


def test_leaves_nothing():
    """A closed proxy has no threads and connections left."""
    with RedisServer() as server, Proxy(server.url) as proxy:
        clients = [redis.Redis.from_url(proxy.url, socket_timeout=1, retry=None) for _ in range(3)]
        for client in clients:
            connect(client)
        dropped, held, _idle = clients
        for client, disturb, way in (dropped, proxy.drop, "replies"), (held, proxy.hold, "requests"):
            disturb(way)
            with pytest.raises(redis.TimeoutError):
                client.set("key", "value")
        assert proxy.connections >= 2
        assert own_threads(proxy)
    poll(lambda: not own_threads(proxy), timeout=20, what="the end of the proxy's threads")
    assert proxy.connections == 0


def test_a_direction_that_does_not_exist(proxy):
    """An invalid direction is an error."""
    with pytest.raises(ValueError, match="reply"):
        proxy.drop("reply")
