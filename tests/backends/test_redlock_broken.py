"""Nodes of a quorum whose connections break, and that take new ones at once, or come back empty."""

import contextlib
import threading
import time

import pytest

from django_redlock.backends.dialing import LEFT_OUT
from django_redlock.backends.redlock import RedlockBackend
from testproject.redis_server import RedisServer
from tests.backends.conftest import SHORT
from tests.support.group import Group
from tests.support.service import poll, revive


class Nodes(Group):
    """Three nodes."""

    def __init__(self):
        super().__init__(RedisServer() for _ in range(3))


@pytest.fixture
def servers(running):
    """They run, and know of nothing."""
    servers = running(Nodes).servers
    for server in servers:
        revive(server)
        with server.client() as client:
            client.flushall()
    return servers


@contextlib.contextmanager
def connections_cut(servers, seconds):
    """All connections to all nodes are closed every so many seconds; what is given counts how often."""
    over, cut = threading.Event(), []

    def work():
        clients = [server.client() for server in servers]
        while not over.wait(seconds):
            for client in clients:
                client.client_kill_filter(_type="normal", skipme=True)
            cut.append(time.monotonic())
        for client in clients:
            client.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield cut
    finally:
        over.set()
        thread.join()


def test_connections_break_all_the_time(servers, client_of):
    """The node is asked on a new one, and is not left out: every attempt is granted."""
    urls = [server.url for server in servers]
    client = client_of(RedlockBackend(urls, ttl=20, node_timeout=2, quarantine=False))
    with connections_cut(servers, 0.1) as cut:
        while len(cut) < 8:
            with client.lock("stock", blocking_timeout=10):
                pass
            assert not any(client.backend._io.party.dialer.failing(node) for node in range(3))


def in_service(servers):
    backend = RedlockBackend([server.url for server in servers], **SHORT)
    assert set(backend.arm().values()) == {"armed"}
    return backend


def in_quarantine(server):
    """How it stands with a node's quarantine, for one who only looks."""
    with server.client() as client:
        return b" " in (client.get("redlock:marker") or b"")


def test_a_renewal_begins_it(servers):
    """A holder that gives a node its vote back begins the quarantine for others that the node may have forgotten."""
    with contextlib.closing(in_service(servers)) as backend:
        lock = backend.lock("stock", ttl=4, auto_renew=False)
        assert lock.acquire()
        poll(lambda: len(backend.describe("stock").nodes) == 3, timeout=3, what="all votes")
        granted = servers[lock._lease.nodes[0]]
        with granted.client() as client:
            client.flushall()
        lock.extend()
        assert in_quarantine(granted)
        assert lock.owned()
        lock.release()


def restart(server):
    server.kill()
    server.start()


def test_a_quarantine_begins_at_once(servers):
    """A process that has asked lately reconnects by itself to a node that comes back, and so begins its quarantine."""
    with contextlib.closing(in_service(servers)) as backend:
        with backend.lock("stock"):
            pass
        servers[2].kill()
        with backend.lock("stock"):  # the last request
            pass
        assert backend._io.party.dialer.failing(2)
        servers[2].start()
        poll(lambda: in_quarantine(servers[2]), timeout=5 * LEFT_OUT, what="a quarantine")
        poll(lambda: not backend._io.party.dialer.failing(2), timeout=5, what="a node that is asked again")


def test_a_connection_begins_it(servers):
    """Where nobody had noticed the restart, the next request begins it, also where that request is no acquire."""
    with contextlib.closing(in_service(servers)) as backend:
        lock = backend.lock("stock", ttl=4, auto_renew=False)
        assert lock.acquire()
        poll(lambda: len(backend.describe("stock").nodes) == 3, timeout=3, what="all votes")
        restart(servers[2])
        lock.extend()
        poll(lambda: in_quarantine(servers[2]), timeout=5 * LEFT_OUT, what="a quarantine")
        lock.release()
