"""Requests to three nodes that are cancelled before the nodes have replied."""

from __future__ import annotations

import asyncio

import pytest

from django_redlock.backends.redlock import RedlockBackend
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.proxy import Proxy
from tests.support.service import poll


@pytest.fixture
def nodes(start):
    """Three nodes."""
    return start(Group(RedisServer() for _ in range(3))).servers


def votes(nodes):
    """Return the number of nodes that have granted the lock."""
    found = 0
    for node in nodes:
        with node.client() as client:
            found += client.exists("redlock:{stock}")
    return found


async def test_the_nodes_are_not_down(start, nodes):
    """After a task was cancelled before the replies arrive, its votes are released and no node counts as down."""
    proxies = [start(Proxy(node.url)) for node in nodes]
    backend = RedlockBackend([proxy.url for proxy in proxies], node_timeout=20, quarantine=False)
    assert all(row["ok"] for row in backend.health())  # and so connected
    keepers = backend._executor.fan_out.connections.keepers
    for proxy in proxies:
        proxy.hold("replies")
    acquiring = asyncio.create_task(backend.lock("stock").aacquire())
    await asyncio.to_thread(poll, lambda: votes(nodes) >= 2, timeout=20, what="votes")
    acquiring.cancel()
    await asyncio.wait([acquiring])
    assert acquiring.cancelled()
    assert [keepers[node].failure(0.0) for node in range(3)] == [None] * 3
    for proxy in proxies:
        proxy.restore()
    await asyncio.to_thread(poll, lambda: votes(nodes) == 0, timeout=20, what="the end of the votes")
    await backend.aclose()
