"""Waiters of a local queue that are cancelled or interrupted. Loops and threads have separate queues."""

import asyncio
import itertools
import signal
import threading

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.contract import Orphan
from django_redlock.core.renewal.registry import renewal
from django_redlock.core.waiting import local_queue
from django_redlock.core.waiting.wait_queue import WaitQueue
from django_redlock.testing.conformance.exclusion import Counter
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.harness.fixtures import eventually
from tests.support.interrupts import interrupted

pytestmark = pytest.mark.usefixtures("woken_only")
WAKE = TEST_TIMEOUT  # see `woken_only`


@pytest.fixture
def backend(redis_url):
    backend = RedisBackend(redis_url, node_timeout=10)
    yield backend
    backend.close()


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("place", ["in redis", "queueing", "next"])
def test_cancelled(backend, unique, place, steps):
    """A task that is cancelled at any point leaves no lock behind, and the others go on."""

    async def scenario():
        holder, *handles = [backend.lock(unique) for _ in range(4)]
        await holder.aacquire()
        tasks = []
        for index, handle in enumerate(handles):
            tasks.append(asyncio.create_task(handle.aacquire()))
            await asyncio.sleep(0)
            assert sum(1 + len(lane.waiters) for lane in backend._local_queue._queues.values()) == index + 1
        if place == "next":
            await holder.arelease()
        for _ in range(steps):
            await asyncio.sleep(0)
        users = dict(zip(tasks, handles, strict=True))
        victim = tasks[0 if place == "in redis" else 1]
        victim.cancel()
        await asyncio.wait([victim])
        if place != "next":
            await holder.arelease()
        if (handle := users.pop(victim)).token:
            await handle.arelease()
        while users:
            done, _ = await asyncio.wait(users, timeout=WAKE, return_when=asyncio.FIRST_COMPLETED)
            assert done, "a lock that nobody owns"
            for task in done:
                await users.pop(task).arelease()
        assert backend._local_queue._queues == {}
        await backend.aclose()

    asyncio.run(scenario())


def test_threads_and_loops(backend, unique):
    """Threads and tasks of several event loops exclude each other, and all get the lock."""
    counter = Counter()

    def threaded():
        for _ in range(10):
            with backend.lock(unique):
                counter.visit()

    async def task():
        for _ in range(10):
            async with backend.lock(unique):
                counter.visit()

    async def tasks():
        await asyncio.gather(*(task() for _ in range(4)))
        await backend.aclose()

    users = [threading.Thread(target=threaded) for _ in range(4)]
    users += [threading.Thread(target=asyncio.run, args=(tasks(),)) for _ in range(2)]
    for user in users:
        user.start()
    for user in users:
        user.join(2 * TEST_TIMEOUT)
    assert (counter.visits, counter.most) == (120, 1)


@pytest.mark.parametrize("place", ["in redis", "queueing"])
def test_ctrl_c(backend, unique, place):
    """KeyboardInterrupt ends the wait of the main thread anywhere, and other threads go on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main, got, holder = threading.main_thread(), threading.Event(), backend.lock(unique)
    holder.acquire()

    def wait():
        with backend.lock(unique):
            got.set()

    def queue():
        return sum(1 + len(lane.waiters) for lane in list(backend._local_queue._queues.values()))

    def strike():
        if place == "in redis":
            assert eventually(lambda: queue() == 1)
            other.start()
        assert eventually(lambda: queue() == 2)
        signal.pthread_kill(main.ident, signal.SIGINT)

    other, striker = threading.Thread(target=wait), threading.Thread(target=strike)
    try:
        if place == "queueing":
            other.start()
            assert eventually(lambda: queue() == 1)
        striker.start()
        with pytest.raises(KeyboardInterrupt):
            backend.lock(unique).acquire(timeout=TEST_TIMEOUT)
        holder.release()
        assert got.wait(TEST_TIMEOUT)
        other.join(TEST_TIMEOUT)
        assert backend._local_queue._queues == {}
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_at_the_end_of_the_queue(backend, unique, monkeypatch):
    """KeyboardInterrupt in the moment in which a waiter joins the queue leaves no waiter that would get the lock."""
    holder, got, add = backend.lock(unique), threading.Event(), WaitQueue.add
    holder.acquire()

    def wait():
        with backend.lock(unique):
            got.set()

    def interrupted(*args):
        add(*args)
        raise KeyboardInterrupt

    other = threading.Thread(target=wait)
    other.start()
    assert eventually(lambda: backend._local_queue._queues)
    with monkeypatch.context() as patch:
        patch.setattr(WaitQueue, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            backend.lock(unique).acquire(timeout=TEST_TIMEOUT)

    def is_cancelled():  # and not again later, when the lock has been handed over
        orphans = [each for _, each in list(renewal.entries.values()) if isinstance(each, Orphan)]
        return all(each.store is not backend for each in orphans)

    assert eventually(is_cancelled)
    holder.release()
    assert got.wait(TEST_TIMEOUT)
    other.join(TEST_TIMEOUT)
    assert backend._local_queue._queues == {}


def test_ctrl_c_anywhere_in_a_hand_over(backend, unique, monkeypatch):
    """After KeyboardInterrupt anywhere in the local queue during a release, all waiters get the lock."""
    monkeypatch.setattr(local_queue, "LEADER_CHECK_SECONDS", 0.05)
    queues = backend._local_queue._queues

    def wait(name):
        with backend.lock(name):
            pass

    for step in itertools.count():
        holder = backend.lock(f"{unique}:{step}")
        holder.acquire()
        waiting = [threading.Thread(target=wait, args=(holder.name,), daemon=True) for _ in range(2)]
        for number, thread in enumerate(waiting):
            thread.start()
            assert eventually(lambda: sum(1 + len(queue.waiters) for queue in list(queues.values())) == number + 1)  # noqa: B023
        holder.extend()
        struck = interrupted(holder.release, step, "core/waiting/")
        if holder.token is not None:
            holder.release()
        for thread in waiting:
            thread.join(TEST_TIMEOUT)
            assert not thread.is_alive(), f"at step {step}"
        if not struck:
            break
    assert step > 10
    assert queues == {}
