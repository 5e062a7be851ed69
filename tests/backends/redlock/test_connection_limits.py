"""A quorum on nodes with limited connections (``?max_connections=``)."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from testproject.redis_server import RedisServer
from tests.support.locks import granted
from tests.support.service import poll

OPTIONS = {"ttl": 40, "node_timeout": 3, "quarantine": False, "history": False}
LIMIT = 2


@pytest.fixture
def places(servers):
    """A LOCATION with limited connection pools. That of a cache gives its settings and its limit only."""
    return [f"{server.url}?max_connections={LIMIT}" for server in servers]


@pytest.fixture
def backend(places):
    with contextlib.closing(RedlockBackend(places, **OPTIONS)) as backend:
        yield backend


def taken(backend, name):
    with backend.lock(name, blocking_timeout=20):
        pass


def test_more_threads_than_connections(places, servers):
    """More threads than connections wait: no attempt fails, and no node gets more connections than allowed."""
    together, most = threading.Barrier(8), []
    backend = RedlockBackend(places, **OPTIONS | {"node_timeout": 20})

    def work(number):
        together.wait(20)
        for _ in range(15):
            taken(backend, f"stock:{number}")

    with contextlib.closing(backend), ThreadPoolExecutor(8) as pool, servers[0].client() as onlooker:
        before = onlooker.client_id()  # connections of earlier tests have smaller ids
        working = [pool.submit(work, number) for number in range(8)]
        while not all(each.done() for each in working):
            most.append(sum(int(each["id"]) > before for each in onlooker.client_list()))
        for each in working:
            each.result()
    assert max(most) <= LIMIT


@pytest.mark.parametrize("stop", [RedisServer.kill, RedisServer.pause], ids=["down", "hung"])
def test_one_node_is_gone(backend, servers, stop):
    """With one node gone, a majority grants and renews as often as asked."""
    taken(backend, "stock")
    stop(servers[2])
    held = backend.lock("held")
    assert held.acquire(timeout=20)
    for number in range(4 * LIMIT):
        taken(backend, f"stock:{number}")
    assert held.extend() > 0
    held.release()
    if stop is RedisServer.pause:
        servers[2].resume()


def test_no_majority(backend, servers):
    for server in servers[1:]:
        server.kill()
    for _ in range(2 * LIMIT):
        with pytest.raises(LockUnavailable, match="no majority") as refused:
            backend.lock("stock").acquire(timeout=0)
        assert len(refused.value.errors) == 2
    for server in servers[1:]:
        server.start()
    poll(lambda: granted(backend), timeout=60, what="a lock")


def test_a_node_that_owes_all_its_answers(backend, servers):
    """A node on which all connections wait for replies counts as not reachable, and others grant the lock."""
    taken(backend, "stock")
    servers[2].pause()
    locks = [backend.lock(f"stock:{number}", auto_renew=False) for number in range(3 * LIMIT)]
    began = time.monotonic()
    assert all(lock.acquire(timeout=20) for lock in locks)
    assert time.monotonic() - began < 15
    servers[2].resume()
    for lock in locks:
        lock.release()
    with servers[2].client() as client:
        poll(lambda: not client.keys("redlock:{stock:*}"), timeout=20, what="a node on which nothing is left")
