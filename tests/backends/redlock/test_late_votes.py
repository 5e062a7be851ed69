"""Late votes and late releases: a late vote may count for the lease, so only the release undoes it."""

import asyncio
import contextlib
import time

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from tests.support.locks import SHORT, connected, held_on, scripts_run
from tests.support.proxy import Proxy
from tests.support.service import poll


@pytest.fixture
def three(servers, proxies):
    """Three nodes, each behind a proxy, and a function that returns the number of nodes that have the lock."""
    with contextlib.closing(store(servers)) as backend:
        assert set(backend.arm().values()) == {"armed"}
    return servers, proxies, lambda: held_on(servers)


def store(places, node_timeout=2.5):
    urls = [place.url for place in places]
    return RedlockBackend(urls, **{**SHORT, "ttl": 30, "max_ttl": 30, "node_timeout": node_timeout})


# How a node can't be reached, and how it can again.
AWAY = {
    "hung": (lambda server, _: server.pause(), lambda server, _: server.resume()),
    "cut off": (lambda _, proxy: proxy.drop(), lambda _, proxy: proxy.restore()),
}


def until_left_out(client):
    """Ask until the first node counts as one that does not reply."""
    while not client.backend._executor.fan_out.nodes[0].keeper.failure(time.monotonic()):
        with client.lock("other"):
            pass


def test_a_vote_that_came_late_is_kept(three, client_of):
    """A node whose vote arrives after the node timeout keeps the lock until the release."""
    _, proxies, holding = three
    client = connected(client_of(store(proxies)))
    proxies[0].hold("replies")
    lock = client.lock("stock", auto_renew=False)
    assert lock.acquire()
    until_left_out(client)
    assert holding() == 3
    lock.release()
    proxies[0].restore()
    poll(lambda: not holding(), timeout=20, what="nodes on which nothing is left")


def test_one_lock_within_another(three):
    """A lock is released on all nodes, even if a node still owes the reply for another lock."""
    _, proxies, holding = three
    for _ in range(20):
        backend = store(proxies, node_timeout=10)  # nothing is connected
        with backend.lock("stock"), backend.lock("other"):
            pass
        poll(lambda: not holding(), timeout=20, what="nodes on which nothing is left")
        backend.close()


@pytest.mark.parametrize("way", AWAY)
def test_a_missed_release_is_made_up_for(three, client_of, way):
    """A release that failed on a node is repeated when the node is back, without waiting for the end of the lease."""
    servers, proxies, holding = three
    leave, come_back = AWAY[way]
    client = connected(client_of(store(proxies)))
    lock = client.lock("stock", ttl=30, auto_renew=False)
    assert lock.acquire()
    poll(lambda: holding() == 3, timeout=20, what="votes of all nodes")
    leave(servers[0], proxies[0])
    until_left_out(client)
    lock.release()
    come_back(servers[0], proxies[0])
    poll(lambda: not holding(), timeout=20, what="nodes on which nothing is left")


def test_a_loop_that_ends_with_the_refusal(three):
    """An event loop that ends with the refusal, while most nodes hang, leaves no votes and no tasks behind."""
    servers, _, holding = three
    backend = store(servers, node_timeout=1.5)

    async def refused():
        assert all(row["ok"] for row in backend.health())
        for server in servers[:2]:
            server.pause()
        with pytest.raises(LockUnavailable) as error:
            await backend.lock("stock", ttl=30, auto_renew=False).aacquire()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        lasting = {each for each in others if not each.cancelling()}
        return len(error.value.errors), lasting

    errors, tasks = asyncio.run(refused())
    for server in servers[:2]:
        server.resume()
    assert (errors, tasks) == (2, set())
    poll(lambda: not holding(), timeout=20, what="nodes on which nothing is left")
    backend.close()


@pytest.mark.parametrize("released", [False, True], ids=["held", "released"])
def test_a_loop_that_ends_before_an_answer(three, released):
    """An event loop that ends while a node still owes a reply leaves no task behind."""
    _, proxies, _ = three
    backend = store(proxies)

    async def work():
        assert all(row["ok"] for row in backend.health())
        proxies[0].hold("replies")
        lock = backend.lock("stock", auto_renew=False)
        assert await lock.aacquire()
        if released:
            await lock.arelease()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(work())
    backend.close()


@pytest.mark.parametrize("drips", [1, 2])
def test_a_vote_that_comes_byte_by_byte(three, client_of, drips):
    """A reply that arrives byte by byte delays no vote of another node; two such nodes prevent a majority."""
    _, proxies, _ = three
    client = connected(client_of(store(proxies, node_timeout=4 / drips)))
    for proxy in proxies[:drips]:
        proxy.drip(0.5)  # 10 s for a vote
    for proxy in proxies[drips:]:
        proxy.delay(0.5)  # the first byte of those is there before
    lock = client.lock("stock")
    if drips == 1:
        assert lock.acquire(False)
        assert lock.remaining > 24
    else:
        with pytest.raises(LockUnavailable, match="no reply in time"):
            lock.acquire(False)


@pytest.fixture
def taken(servers):
    """Three nodes, two of which have granted the lock to another holder."""
    for server in servers[:2]:
        with server.client() as client:
            client.set("redlock:{stock}", "another", px=60_000)
    return servers


def test_a_late_vote_is_released_after_the_refusal(taken, start, client_of):
    """A refusal by a majority is returned at once, and a late vote of the third node is released."""
    proxy = start(Proxy(taken[2].url))
    urls = [taken[0].url, taken[1].url, proxy.url]
    client = connected(client_of(RedlockBackend(urls, ttl=30, node_timeout=5, quarantine=False)))
    before = scripts_run(taken[2])
    proxy.hold("requests")
    assert not client.lock("stock").acquire(blocking=False)
    assert scripts_run(taken[2]) == before
    proxy.restore()
    poll(lambda: scripts_run(taken[2]) >= before + 2, timeout=20, what="the acquire and its undoing")
    assert not held_on(taken[2:])


def test_refused_before_all_nodes_are_connected(start, own_nodes, client_of):
    """A semaphore that enough nodes report as full is refused, although slow nodes are not connected yet."""
    servers = own_nodes(5)
    slow = [start(Proxy(server.url)) for server in servers[:2]]
    places = [server.url for server in servers]
    holder = connected(client_of(RedlockBackend(places, ttl=60, node_timeout=5, quarantine=False)))
    permits = [holder.semaphore("stock", limit=2) for _ in range(2)]
    assert all(permit.acquire(blocking=False) for permit in permits)
    for proxy in slow:
        proxy.hold("requests")
    client = client_of(RedlockBackend([each.url for each in slow] + places[2:], node_timeout=3, quarantine=False))
    assert client.semaphore("stock", limit=2).acquire(blocking=False) is False
