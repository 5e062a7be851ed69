"""Requests to three nodes that are cancelled before the nodes have replied."""

import asyncio

from django_redlock.backends.redlock import RedlockBackend
from tests.support.locks import held_on
from tests.support.proxy import Proxy
from tests.support.service import poll


async def test_the_nodes_are_not_down(start, servers):
    """After a task was cancelled before the replies arrive, its votes are released and no node counts as down."""
    proxies = [start(Proxy(node.url)) for node in servers]
    backend = RedlockBackend([proxy.url for proxy in proxies], node_timeout=20, quarantine=False)
    assert all(row["ok"] for row in backend.health())  # and so connected
    nodes = backend._executor.fan_out.nodes
    for proxy in proxies:
        proxy.hold("replies")
    acquiring = asyncio.create_task(backend.lock("stock").aacquire())
    await asyncio.to_thread(poll, lambda: held_on(servers) >= 2, timeout=20, what="votes")
    acquiring.cancel()
    await asyncio.wait([acquiring])
    assert acquiring.cancelled()
    assert [node.keeper.failure(0.0) for node in nodes] == [None] * 3
    for proxy in proxies:
        proxy.restore()
    await asyncio.to_thread(poll, lambda: held_on(servers) == 0, timeout=20, what="the end of the votes")
    await backend.aclose()
