"""A cancelled waiter does not delay other waiters."""

import asyncio

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.core.background import work
from django_redlock.core.flow.requests import Block
from django_redlock.core.keys import glob_escape
from django_redlock.testing.conformance.shared_handles import MAKE
from testproject.redis_server import RedisServer
from tests.support.group import ThreeNodes
from tests.support.locks import new_lock
from tests.support.service import poll

pytestmark = pytest.mark.usefixtures("woken_only")
SOON = 15  # seconds: less than the time after which a waiter lapses from the list


def made(kind, backend, name):
    return new_lock(kind, backend, name, **({"stripes": 2} if kind == "striped" else {}))


@pytest.fixture(params=["one", "three", "cluster"])
def place(request, running):
    """A backend and its servers. The connections of the backend end with the test."""
    if request.param == "cluster":
        cluster = request.getfixturevalue("cluster")
        servers, backend = cluster.nodes, RedisBackend(cluster.url, node_timeout=10)
    elif request.param == "one":
        servers = [running(RedisServer)]
        backend = RedisBackend(servers[0].url, node_timeout=10)
    else:
        servers = running(ThreeNodes).servers
        backend = RedlockBackend([server.url for server in servers], node_timeout=10, quarantine=False)
    yield backend, servers
    # A waiter is cancelled again in the background, on a new connection.
    poll(lambda: not left_for_later(backend), timeout=20, what="the last cancellation")
    backend.close()


def left_for_later(backend):
    """Return the claims that this process will release on this backend in the background."""
    return [orphan for _, orphan in list(work.background.orphans.values()) if orphan.store is backend]


def listed(servers, name):
    found = []
    for server in servers:
        with server.client() as client:
            pattern = f"redlock:*{glob_escape(name)}*:"
            found += [key for end in ("waiters", "line") for key in client.scan_iter(pattern + end)]
    return found


def waiters(servers, name):
    found = 0
    for server in servers:
        with server.client() as client:
            found += sum(client.zcard(key) for key in client.scan_iter(f"redlock:*{glob_escape(name)}*:waiters"))
    return found


async def cancelled(backend, servers, unique, kind):
    """Wait with a task, cancel it, and check that its entry is gone."""
    held = made("rwlock" if kind == "read" else kind, backend, unique)
    more = [made(kind, backend, unique)] if kind == "striped" else []
    async with asyncio.timeout(20):
        for each in (held, *more):
            # Who would wait is listed on a node that refused it, also when the others have granted the lock.
            while not await each.aacquire(blocking=False):
                pass
    waiting = asyncio.create_task(made(kind, backend, unique).aacquire())
    await asyncio.to_thread(poll, lambda: listed(servers, unique), timeout=20, what="a waiter")
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    await asyncio.to_thread(poll, lambda: not listed(servers, unique), timeout=SOON, what="its leave")
    for each in (held, *more):
        await each.arelease()
    await backend.aclose()


@pytest.mark.parametrize("kind", sorted({*MAKE, "read"} - {"fair"}))
async def test_cancelled(place, unique, kind):
    await cancelled(*place, unique, kind)


@pytest.mark.parametrize("place", ["one", "cluster"], indirect=True)
async def test_cancelled_in_order(place, unique):
    await cancelled(*place, unique, "fair")


@pytest.mark.parametrize("kind", ["fair", "read", "rwlock"])
async def test_leaves_at_once(running, unique, monkeypatch, kind):
    """A cancelled waiter in a queue is removed at once, even if its last request may still be under way."""
    monkeypatch.setattr(work, "CANCEL_DELAY", 60)
    server = running(RedisServer)
    await cancelled(RedisBackend(server.url, node_timeout=5), [server], unique, kind)


async def test_cancelled_after_its_wake_up(running, unique, monkeypatch):
    """A waiter that is cancelled between its wake-up and its next try leaves a free permit to the next waiter."""
    server = running(RedisServer)
    backend = ReplicaBackend(server.url, min_replicas=0, quarantine=False, node_timeout=10, ttl=60)
    held, waits = ([backend.semaphore(unique, limit=2, auto_renew=False) for _ in range(2)] for _ in range(2))
    for each in held:
        assert await each.aacquire(timeout=20)
    perform, cancelled = backend.aperform, []

    async def cancelling(request):
        reply = await perform(request)
        if type(request) is Block and not cancelled:
            cancelled.append(asyncio.current_task())
            cancelled[0].cancel()
            await asyncio.sleep(0)
        return reply

    monkeypatch.setattr(backend, "aperform", cancelling)
    waiting = [asyncio.create_task(each.aacquire()) for each in waits]
    await asyncio.to_thread(poll, lambda: waiters([server], unique) == 2, timeout=20, what="two waiters")
    await held[0].arelease()
    async with asyncio.timeout(20):
        await asyncio.wait(waiting)
    assert sorted(task.cancelled() for task in waiting) == [False, True]
    await backend.aclose()


@pytest.mark.parametrize("kind", ["mutex", "semaphore", "striped", "multilock"])
@pytest.mark.parametrize("in_asyncio", [False, True], ids=["sync", "async"])
def test_a_wait_shorter_than_a_request(place, unique, kind, in_asyncio):
    """A waiter whose time is up before the first reply leaves no entry."""
    backend, servers = place
    held = [made(kind, backend, unique)]
    held += [made(kind, backend, unique)] if kind == "striped" else []
    assert all(lock.acquire(timeout=20) for lock in held)
    waiting = [made(kind, backend, unique) for _ in range(10)]
    timeouts = [0.0002 * (1 + number) for number in range(10)]

    async def in_turn():
        return [await lock.aacquire(timeout=timeout) for lock, timeout in zip(waiting, timeouts, strict=True)]

    if in_asyncio:
        assert not any(asyncio.run(in_turn()))
    else:
        assert not any(lock.acquire(timeout=timeout) for lock, timeout in zip(waiting, timeouts, strict=True))
    # On a quorum, no client waits for the replies to these requests.
    poll(lambda: not listed(servers, unique), timeout=SOON, what="an empty list")
    for lock in held:
        lock.release()
    backend.close()
