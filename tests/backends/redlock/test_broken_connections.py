"""Nodes of a quorum that close connections, accept new ones at once, or come back without data."""

import contextlib

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.client.fanout.node_keeper import DOWN_SECONDS
from tests.support.locks import connected, crash, held_by_all
from tests.support.service import poll


def test_connections_break(proxies, client_of):
    """A node that closes connections and accepts new ones is retried at once and not marked down."""
    options = {"ttl": 60, "max_ttl": 60, "node_timeout": 10, "quarantine": False}
    client = connected(client_of(RedlockBackend([proxy.url for proxy in proxies], **options)))
    lost = [[proxy.lose_next_reply(b"{stock}") for _ in range(2)] for proxy in proxies[:2]]
    lock = client.lock("stock")
    assert lock.acquire(blocking=False)
    assert any(all(each.is_set() for each in replies) for replies in lost)  # the third node and one of these two
    assert not any(node.keeper.is_down for node in client.backend._executor.fan_out.nodes)
    lock.release()


def in_service(servers):
    backend = RedlockBackend([server.url for server in servers], ttl=30, max_ttl=30, node_timeout=5)
    assert set(backend.arm().values()) == {"armed"}
    return backend


def in_quarantine(server):
    """Return the state of a node's quarantine, without changing it."""
    with server.client() as client:
        return b" " in (client.get("redlock:marker") or b"")


def test_a_reconnect_starts_the_quarantine(servers):
    """A process reconnects by itself to a node that comes back, and so starts its quarantine."""
    with contextlib.closing(in_service(servers)) as backend:
        with backend.lock("stock"):
            pass
        servers[2].kill()
        with backend.lock("stock"):  # the last request
            pass
        keeper = backend._executor.fan_out.nodes[2].keeper
        poll(lambda: keeper.is_down, timeout=20, what="the node to be skipped")
        servers[2].start()
        poll(lambda: in_quarantine(servers[2]), timeout=20 * DOWN_SECONDS, what="a quarantine")
        poll(lambda: not keeper.is_down, timeout=20, what="a node that is asked again")


def test_extended_after_a_restart_of_two_nodes(servers):
    """An extension succeeds at once after two of three nodes, whose connections were idle, came back without data."""
    with contextlib.closing(in_service(servers)) as backend:
        lock = backend.lock("stock", auto_renew=False)
        held_by_all(lock, lambda: len(backend.describe("stock").nodes) == 3)
        for server in servers[1:]:
            crash(server)
        assert lock.extend() > 0
        lock.release()
