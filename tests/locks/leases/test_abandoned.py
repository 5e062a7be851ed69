"""Locks whose holder has ended, and handles without references."""

import asyncio
import gc
import json
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redlock import RedlockBackend
from tests.support.locks import renew_now
from tests.support.proxy import Proxy
from tests.support.service import poll


@pytest.fixture
def events():
    return []


@pytest.fixture
def backend(unique, events):
    backend = LocMemBackend(unique)
    backend.hook = events.append
    return backend


def kinds(events):
    return [event.kind for event in events]


def acquired_in_a_thread(lock):
    thread = threading.Thread(target=lock.acquire, name="import-7")
    thread.start()
    thread.join()


def acquired_in_a_loop(lock):
    asyncio.run(lock.aacquire())


def renewed(lock):
    lease = lock.hold.lease
    renew_now(lock)
    poll(lambda: lock.hold.lease is not lease, timeout=20, what="a renewal")


async def test_task_that_ends(backend, events):
    """A task that ends without a release is reported, although its event loop goes on."""
    lock = backend.lock("stock")

    async def job():
        await lock.aacquire()

    await asyncio.create_task(job(), name="import-7")
    await asyncio.to_thread(renewed, lock)
    await asyncio.to_thread(poll, lambda: "abandoned" in kinds(events), timeout=20, what="the event")
    assert json.loads(events[-1].holder)["task"] == "import-7"
    await lock.arelease()


@pytest.mark.parametrize(
    ("acquire", "holder"), [(acquired_in_a_thread, "import-7"), (acquired_in_a_loop, "Task-")], ids=["thread", "loop"]
)
def test_reported_once(backend, events, caplog, acquire, holder):
    """The first renewal after the end of the holder warns once, with its name and the way out. The lock stays held."""
    lock = backend.lock("stock")
    acquire(lock)
    renewed(lock)
    poll(lambda: "abandoned" in kinds(events), timeout=20, what="the event")
    renewed(lock)
    assert lock.owned()
    lock.release()
    assert kinds(events) == ["acquired", "abandoned", "released"]
    [warning] = caplog.messages
    assert "'stock'" in warning
    assert holder in warning
    assert "max_hold" in warning


def test_holder_that_lives(backend, events):
    """A holder that has not ended is not reported, nor is a lock with a time limit."""
    with ThreadPoolExecutor(1) as pool:
        held = backend.lock("held")
        pool.submit(held.acquire).result()
        renewed(held)
        limited = backend.lock("limited", max_hold=60)
        acquired_in_a_thread(limited)
        renewed(limited)
        for lock in (held, limited):
            lock.release()
    assert "abandoned" not in kinds(events)


async def test_acquire_in_a_task_of_its_own(backend, events):
    """A task that only acquires the lock for another task, as ``wait_for`` may make it, is no holder that has ended."""
    lock = backend.lock("stock")
    await asyncio.create_task(lock.aacquire())
    await asyncio.to_thread(renewed, lock)
    await lock.arelease()
    assert "abandoned" not in kinds(events)


@pytest.fixture
def no_collection():
    """No collection of reference cycles during the test."""
    gc.disable()
    yield
    gc.enable()


def taken_and_dropped(backend, name):
    lock = backend.lock(name, ttl=60)
    assert lock.acquire(False)
    assert lock.extend()
    return weakref.ref(lock)


@pytest.mark.usefixtures("no_collection")
def test_a_node_is_gone(own_nodes, backend_at, unique):
    """A handle is collected at once, although a node was not reachable."""
    servers = own_nodes(3)
    backend = backend_at([server.url for server in servers], RedlockBackend)
    backend.arm()
    with backend.lock(unique):
        pass
    servers[2].kill()
    assert taken_and_dropped(backend, unique)() is None


@pytest.mark.usefixtures("no_collection")
def test_the_connection_was_closed(start, redis_server, unique, backend_at):
    """A handle is collected at once, although its connection was closed and its request repeated."""
    proxy = start(Proxy(redis_server.url))
    backend = backend_at(proxy.url)
    with backend.lock(unique):
        pass
    proxy.cut()
    assert taken_and_dropped(backend, unique)() is None
