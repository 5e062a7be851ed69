"""Nodes of a quorum whose connections fail, one by one or at random, or that come back without data."""

import contextlib
import random
import time

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.client.fanout.node_keeper import DOWN_SECONDS
from django_redlock.errors import LockUnavailable
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


NODE_TIMEOUT = 3
SLACK = 2.7  # seconds that a busy machine may take beside
ROUNDS = 10  # in one of them two nodes are unwell
PLIGHTS = {
    "answers late": lambda proxy: proxy.hold("replies"),
    "hears late": lambda proxy: proxy.hold("requests"),
    "slow": lambda proxy: proxy.delay(0.1),
    "byte by byte": lambda proxy: proxy.drip(0.3),
    "cut off": lambda proxy: proxy.drop(),
    "unheard": lambda proxy: proxy.drop("replies"),
    "closed": lambda proxy: proxy.cut(),
    "reply lost": lambda proxy: proxy.lose_next_reply(b"{lock"),
    "refusing": lambda proxy: (proxy.refuse(), proxy.cut()),
}


@pytest.fixture
def three(servers, proxies):
    """The proxies in front of three nodes, and a function that lists the locks on all nodes."""
    backend = RedlockBackend([server.url for server in servers], max_ttl=60, node_timeout=5)
    assert set(backend.arm().values()) == {"armed"}
    backend.close()
    clients = [server.client() for server in servers]
    yield proxies, lambda: [key for client in clients for key in client.scan_iter("redlock:{lock*}")]
    for client in clients:
        client.close()


@pytest.mark.parametrize("seed", range(2))
def test_no_vote_is_left_over(three, client_of, seed):
    """Under random failures a healthy majority grants at once, waits are bounded, and no vote is left over."""
    chance, (proxies, left) = random.Random(seed), three
    backend = RedlockBackend([proxy.url for proxy in proxies], ttl=30, max_ttl=60, node_timeout=NODE_TIMEOUT)
    client, told = client_of(backend), []
    party = backend._executor.fan_out

    def well():
        """Return whether all nodes are connected, and none is marked down."""
        return all(row["ok"] for row in backend.health()) and not any(
            node.keeper.failure(time.monotonic()) for node in party.nodes
        )

    def meet(plights):
        for node, plight in plights.items():
            PLIGHTS[plight](proxies[node])

    def play(name, plights, held, relieved):
        """Acquire and release under ``plights``. Return whether the outcome is as it must be, and in time."""
        poll(well, timeout=60, what="three nodes")
        if not held:
            meet(plights)
        lock, began, granted = client.lock(name, auto_renew=False), time.monotonic(), False
        with contextlib.suppress(LockUnavailable):
            granted = lock.acquire(blocking=False)
        took, majority = time.monotonic() - began, len(plights) == 1 or held
        told.append((plights, held, granted, took))
        if held:
            meet(plights)
        elif relieved:  # else the release meets the same
            restore(proxies)
        if granted:
            with contextlib.suppress(LockUnavailable):
                lock.release()
        restore(proxies)
        return (granted or not majority) and took < SLACK + (0 if majority else 2 * NODE_TIMEOUT)

    again = 0
    for number in range(ROUNDS):
        unwell = chance.sample(range(3), 1 if number else 2)
        plights, held = {node: chance.choice(sorted(PLIGHTS)) for node in unwell}, chance.random() < 0.4
        relieved = not held and chance.random() < 0.5
        # A defect shows each time, a machine that was stopped for a moment does not.
        turns = (play(f"lock{number}:{turn}", plights, held, relieved) for turn in range(3))
        again += next((turn for turn, as_it_must_be in enumerate(turns) if as_it_must_be), 3)
        assert again <= 2, told
    poll(well, timeout=60, what="three nodes")
    poll(lambda: not left(), timeout=20, what=f"nodes on which nothing is left: {told}")


def restore(proxies):
    for proxy in proxies:
        proxy.restore()
