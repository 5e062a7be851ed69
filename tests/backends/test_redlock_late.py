"""Votes whose answers come late: they may be counted on, and so are undone by the release only."""

import pytest

from django_redlock.backends.redlock import RedlockBackend
from testproject.redis_server import RedisServer
from tests.backends.conftest import SHORT
from tests.support.group import Group
from tests.support.proxy import Proxy
from tests.support.service import poll


@pytest.fixture
def three(start):
    """Three nodes in service, each behind a proxy, and a look at who has the lock."""
    servers = start(Group(RedisServer() for _ in range(3))).servers
    proxies = [start(Proxy(server.url)) for server in servers]
    backend = store(servers)
    assert set(backend.arm().values()) == {"armed"}
    assert backend.prepare()
    backend.close()

    def holding():
        clients = [server.client() for server in servers]
        try:
            return [bool(client.exists("redlock:{stock}")) for client in clients]
        finally:
            for client in clients:
                client.close()

    return proxies, holding


def store(places):
    return RedlockBackend([place.url for place in places], **{**SHORT, "ttl": 5, "max_ttl": 5})


def test_a_vote_that_came_late_is_kept(three):
    """A node that granted, and whose answer is slow, keeps the lock beyond the node timeout, until the release."""
    proxies, holding = three
    backend = store(proxies)
    assert all(row["ok"] for row in backend.health())  # and so connected
    proxies[0].hold("replies")
    lock = backend.lock("stock", auto_renew=False)
    assert lock.acquire()
    while not backend._io.party._dialer.failure(0, 0.0):
        with backend.lock("other"):
            pass
    assert holding() == [True, True, True]
    proxies[0].restore()
    lock.release()
    poll(lambda: not any(holding()), timeout=2, what="nodes on which nothing is left")
    backend.close()


async def test_a_vote_that_came_late_is_kept_in_asyncio(three):
    """The same on an event loop."""
    proxies, holding = three
    backend = store(proxies)
    assert all(row["ok"] for row in await backend.ahealth())  # and so connected
    proxies[0].hold("replies")
    lock = backend.lock("stock", auto_renew=False)
    assert await lock.aacquire()
    while not backend._io.party._dialer.failure(0, 0.0):
        async with backend.lock("other"):
            pass
    assert holding() == [True, True, True]
    await lock.arelease()
    proxies[0].restore()
    poll(lambda: not any(holding()), timeout=2, what="nodes on which nothing is left")
    await backend.aclose()


def test_one_lock_within_another(three):
    """What is held within the time that a node still owes an answer for another lock is freed on all nodes."""
    proxies, holding = three
    for _ in range(20):
        backend = store(proxies)
        with backend.lock("stock"), backend.lock("other"):
            pass
        poll(lambda: not any(holding()), timeout=2, what="nodes on which nothing is left")
        backend.close()
