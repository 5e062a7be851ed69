"""Attempts that a majority of nodes refuses before the other nodes have replied."""

import pytest

from django_redlock.backends.redlock import RedlockBackend
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.locks import held_on, scripts_run
from tests.support.proxy import Proxy
from tests.support.service import poll

KEY = "redlock:{stock}"


@pytest.fixture
def three(servers):
    """Three nodes, two of which have granted the lock to another holder."""
    for server in servers[:2]:
        with server.client() as client:
            client.set(KEY, "another", px=60_000)
    return servers


def test_a_late_vote_is_released_after_the_refusal(three, start, client_of):
    """A refusal by a majority is returned at once, and a late vote of the third node is released."""
    proxy = start(Proxy(three[2].url))
    urls = [three[0].url, three[1].url, proxy.url]
    client = client_of(RedlockBackend(urls, ttl=30, node_timeout=5, quarantine=False))
    assert all(row["ok"] for row in client.backend.health())  # and so connected
    before = scripts_run(three[2])
    proxy.hold("requests")
    assert not client.lock("stock").acquire(blocking=False)
    assert scripts_run(three[2]) == before
    proxy.restore()
    poll(lambda: scripts_run(three[2]) >= before + 2, timeout=20, what="the acquire and its undoing")
    assert not held_on(three[2:])


def test_refused_before_all_nodes_are_connected(start, client_of):
    """A semaphore that enough nodes report as full is refused, although slow nodes are not connected yet."""
    servers = start(Group(RedisServer() for _ in range(5))).servers
    slow = [start(Proxy(server.url)) for server in servers[:2]]
    holder = client_of(RedlockBackend([server.url for server in servers], ttl=60, node_timeout=5, quarantine=False))
    assert all(row["ok"] for row in holder.backend.health())
    permits = [holder.semaphore("stock", limit=2) for _ in range(2)]
    assert all(permit.acquire(blocking=False) for permit in permits)
    for proxy in slow:
        proxy.hold("requests")
    urls = [each.url for each in (*slow, *servers[2:])]
    client = client_of(RedlockBackend(urls, node_timeout=5, quarantine=False))
    assert client.semaphore("stock", limit=2).acquire(blocking=False) is False
