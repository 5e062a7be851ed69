"""``on_lost`` of a handle that several threads and event loops share."""

import asyncio
import threading

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.errors import LockLost


async def test_on_the_loop_of_the_holder(unique):
    """The callback runs on the event loop that acquired the lock, also after another thread has tried the handle."""
    backend, called = LocMemBackend(unique), asyncio.Event()
    threads = []
    lock = backend.lock("stock", on_lost=lambda _: (threads.append(threading.get_ident()), called.set()))
    assert await lock.aacquire()
    assert not await asyncio.to_thread(lock.acquire, False)
    assert not await asyncio.to_thread(lambda: asyncio.run(lock.aacquire(False)))
    assert backend.force_release("stock")
    with pytest.raises(LockLost):
        await lock.aextend()
    async with asyncio.timeout(60):
        await called.wait()
    assert threads == [threading.get_ident()]


def test_not_on_the_loop_of_a_refused_task(unique):
    """The callback of a thread that holds the lock does not run on the event loop of a task that was refused."""
    backend, called, threads = LocMemBackend(unique), threading.Event(), []
    lock = backend.lock("stock", on_lost=lambda _: (threads.append(threading.get_ident()), called.set()))
    assert lock.acquire()

    async def refused():
        assert not await lock.aacquire(False)
        assert backend.force_release("stock")
        with pytest.raises(LockLost):
            await asyncio.to_thread(lock.extend)
        assert await asyncio.to_thread(called.wait, 60)

    asyncio.run(refused())
    assert threads != [threading.get_ident()]


def test_another_thread_is_faster(unique):
    """A loss is reported, although another thread acquires the lock through the handle before the next renewal."""
    backend, called = LocMemBackend(unique), threading.Event()
    lock = backend.lock("stock", on_lost=lambda _: called.set())
    with lock:
        assert backend.force_release("stock")
        thread = threading.Thread(target=lambda: lock.acquire() and lock.release())
        thread.start()
        thread.join(60)
        with pytest.raises(LockLost):
            lock.check()
        assert called.wait(60)
