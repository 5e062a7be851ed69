"""Locks in the memory of one process."""

import asyncio
import threading
from functools import partial

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.locmem import backend as locmem


def test_first_use_by_two_threads(monkeypatch, unique):
    """Two threads that use a location for the first time at once share one lock table."""
    together, got = threading.Barrier(2), []

    class SlowSpace(locmem.LockTable):
        def __init__(self):
            super().__init__()
            together.wait(10)  # both are making one

    monkeypatch.setattr(locmem, "LockTable", SlowSpace)
    backend = LocMemBackend(unique)
    threads = [threading.Thread(target=lambda: got.append(backend.lock("stock").acquire(False))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(got) == [False, True]


def test_locations_are_independent(unique):
    """Backends of one location share their locks, and backends of different locations don't."""
    first, same, another = LocMemBackend(unique), LocMemBackend(unique), LocMemBackend(unique + "x")
    with first.lock("stock"):
        assert not same.lock("stock").acquire(False)
        with another.lock("stock"):
            pass
    assert same.lock("stock").acquire(False)


def test_clear(unique):
    """clear() removes every lock of the location, and their holders have lost them."""
    backend = LocMemBackend(unique)
    lock = backend.lock("stock")
    lock.acquire()
    backend.clear()
    assert not lock.owned()
    assert backend.held() == []


async def test_a_fair_waiter_goes_first(unique):
    """A newcomer without fair=True is not granted a free lock while a woken fair waiter hasn't tried again yet."""
    backend, order = LocMemBackend(unique, clock=lambda: 100.0), []

    async def take(fair):
        async with backend.lock("stock", fair=fair):
            order.append(fair)

    async with backend.lock("stock"):
        waiting = asyncio.create_task(take(True))
        await asyncio.sleep(0)  # the task runs until it waits for a wake-up
        assert backend.describe("stock").waiters == 1
    await take(False)  # runs before the waiting task, which is woken but has not run
    await waiting
    assert order == [True, False]


def test_a_waiter_for_a_lock_of_another_kind(unique):
    """A read lock is granted while waiters for a mutex of its name are listed, and its release wakes them."""
    backend, woken = LocMemBackend(unique), []
    lock, mutex, reading = backend.lock("stock"), backend.lock("stock"), backend.rwlock("stock").read
    lock.acquire()
    for number in range(2):
        backend.attempt(mutex.primitive, mutex.new_claim(), 0.0, 1.0, partial(woken.append, number))
    lock.release()
    assert woken == [0, 1]
    assert reading.acquire(False)
    assert woken == [0, 1]
    reading.release()
    assert woken == [0, 1, 0, 1]
