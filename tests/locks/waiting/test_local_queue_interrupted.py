"""Waiters of a local queue that are cancelled or interrupted. Loops and threads have separate queues."""

import asyncio
import signal
import threading

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.locks import local_queue
from django_redlock.testing.conformance.exclusion import Counter
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.harness.fixtures import eventually
from tests.support.interrupts import anywhere

pytestmark = pytest.mark.usefixtures("woken_only")
WAKE = TEST_TIMEOUT  # see `woken_only`


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("place", ["in redis", "queueing", "next"])
async def test_cancelled(backend, unique, place, steps):
    """A task that is cancelled at any point leaves no lock behind, and the others go on."""
    holder, *handles = [backend.lock(unique) for _ in range(4)]
    await holder.aacquire()
    tasks = []
    for index, handle in enumerate(handles):
        tasks.append(asyncio.create_task(handle.aacquire()))
        async with asyncio.timeout(WAKE):
            while queue_length(backend) != index + 1:  # noqa: ASYNC110
                await asyncio.sleep(0)
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
    assert backend.local_queues._queues == {}
    await backend.aclose()


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

    def strike():
        if place == "in redis":
            assert eventually(lambda: queue_length(backend) == 1)
            other.start()
        assert eventually(lambda: queue_length(backend) == 2)
        signal.pthread_kill(main.ident, signal.SIGINT)

    other, striker = threading.Thread(target=wait), threading.Thread(target=strike)
    try:
        if place == "queueing":
            other.start()
            assert eventually(lambda: queue_length(backend) == 1)
        striker.start()
        with pytest.raises(KeyboardInterrupt):
            backend.lock(unique).acquire(timeout=TEST_TIMEOUT)
        holder.release()
        assert got.wait(TEST_TIMEOUT)
        other.join(TEST_TIMEOUT)
        assert backend.local_queues._queues == {}
    finally:
        signal.signal(signal.SIGINT, before)


def test_interrupted_hand_over(redis_url, unique, monkeypatch):
    """After an interrupt anywhere in a local hand-over, the waiters get the lock soon, one after the other."""
    monkeypatch.setattr(local_queue, "LEADER_CHECK_SECONDS", 1.0)
    backend = RedisBackend(redis_url, node_timeout=10, ttl=5)

    def work(lock, counter):
        with lock:
            counter.visit()

    for interrupt in anywhere("core/(locks|algorithms)|client", least=20):
        counter, (holder, *waiting) = Counter(), [backend.lock(unique) for _ in range(3)]
        assert holder.acquire(timeout=TEST_TIMEOUT)
        workers = [threading.Thread(target=work, args=(lock, counter), daemon=True) for lock in waiting]
        for number, worker in enumerate(workers, 1):
            worker.start()
            assert eventually(lambda: queue_length(backend) == number)  # noqa: B023
        step = interrupt(holder.release)
        if still_held := holder.token is not None:
            counter.visit()
            holder.release()
        for worker in workers:
            worker.join(TEST_TIMEOUT)
        assert (counter.visits, counter.most) == (2 + still_held, 1), f"at step {step}"
    backend.close()


def queue_length(backend):
    return sum(1 + len(queue.waiters) for queue in list(backend.local_queues._queues.values()))
