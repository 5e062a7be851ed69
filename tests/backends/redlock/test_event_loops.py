"""A quorum's lock that is acquired on one event loop and released on another loop or in a thread, or cancelled."""

import asyncio
import contextlib
import gc
import time
import weakref

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.client.fanout.broadcast_drivers import MAX_IN_FLIGHT
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.actors import EventLoop
from tests.support.locks import held_on, scripts_run
from tests.support.proxy import Proxy
from tests.support.service import poll, revive

OPTIONS = {"ttl": 60, "max_ttl": 60, "node_timeout": 5, "quarantine": False, "history": False}


@pytest.fixture
def three(servers, start):
    """A backend that is connected to three nodes, the first behind a proxy."""
    proxy = start(Proxy(servers[0].url))
    places = [proxy.url, servers[1].url, servers[2].url]
    with contextlib.closing(RedlockBackend(places, **OPTIONS)) as backend:
        poll(
            lambda: taken(backend) and not any(node._in_flight for node in backend._executor.fan_out.nodes),
            timeout=60,
            what="three nodes",
        )
        yield backend, servers, proxy
    revive(servers[0])


def taken(backend):
    """Connect to every node, acquire and release a lock, and return whether every node is connected."""
    if not all(row["ok"] for row in backend.health()):
        return False
    with backend.lock("warm"):
        pass
    return all(row["ok"] for row in backend.health())


def hang(server, _):
    server.pause()


def hear_late(_, proxy):
    proxy.hold("requests")


def answer_late(_, proxy):
    proxy.hold("replies")


WAYS = {
    "the same loop": lambda loop, lock: loop.run(lock.arelease()),
    "another loop": lambda _, lock: asyncio.run(lock.arelease()),
    "a thread": lambda _, lock: lock.release(),
}


@pytest.mark.parametrize(
    ("way", "lives"),
    [(way, lives) for way in WAYS for lives in (True, False) if lives or way != "the same loop"],
    ids=lambda value: {True: "the loop runs", False: "the loop has ended"}.get(value, value),
)
@pytest.mark.parametrize("plight", [hang, hear_late, answer_late])
def test_released_on_another_loop_or_thread(three, plight, way, lives):
    """A release on another loop or thread ends within the node timeout, and leaves nothing on a node that resumes."""
    backend, servers, proxy = three
    lock = backend.lock("stock", auto_renew=False)
    with contextlib.closing(EventLoop()) as loop:
        before = scripts_run(servers[0])
        plight(servers[0], proxy)
        run = loop.run if lives else asyncio.run
        assert run(lock.aacquire(timeout=20))
        began = time.monotonic()
        WAYS[way](loop, lock)
        assert time.monotonic() - began < 20  # ttl: 60
        servers[0].resume()
        proxy.restore()
        poll(lambda: scripts_run(servers[0]) >= before + 2, timeout=20, what="the acquire and its release")
        assert not held_on(servers[:1])


def test_an_ended_loop(three):
    """An event loop whose tasks waited for their turn to send a request leaves nothing in memory."""
    backend, _, _ = three

    async def pair(number):
        async with backend.lock(f"stock:{number}"):
            pass

    async def scenario():
        await asyncio.gather(*map(pair, range(2 * MAX_IN_FLIGHT)))
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(scenario())
    gc.collect()
    assert loop() is None


def test_many_tasks_far_from_the_quorum(proxies):
    """With more tasks than a distant quorum can serve in time, each ends after its own time limits."""
    timeout = 1.0

    async def attempt(backend, number):
        begun = time.monotonic()
        with contextlib.suppress(LockUnavailable):
            assert await backend.lock(f"stock:{number}").aacquire(timeout=0)
        return time.monotonic() - begun

    async def main():
        backend = RedlockBackend([proxy.url for proxy in proxies], node_timeout=timeout, quarantine=False)
        assert all(row["ok"] for row in await backend.ahealth())  # and so connected
        for proxy in proxies:
            proxy.delay(0.05)
        took = await asyncio.gather(*(attempt(backend, number) for number in range(400)))
        for proxy in proxies:
            proxy.restore()
        await backend.aclose()
        return took

    assert max(asyncio.run(main())) < 4 * timeout  # one each for its turn, its request, and the undo of a minority
