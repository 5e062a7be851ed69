"""Reports of losses: late ones, and those of a handle that several threads and event loops share."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.core.background.work import background
from django_redlock.errors import LockLost
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT


@pytest.fixture
def report(monkeypatch):
    """`report()`: report the loss of a lease, which is not reported before."""
    held_back = []
    monkeypatch.setattr(background, "report", held_back.append)

    def report():
        held_back.pop()()

    return report


def test_each_loss_is_reported_once(backend, unique, report):
    """on_lost is called once for each lost lease, and not for a lease that is held."""
    calls = []
    lock = backend.lock(unique, ttl=60, on_lost=lambda lock: calls.append((lock.token, lock.lost)))
    assert lock.acquire()
    lock.hold.mark_lost("for a test")
    with pytest.raises(LockLost):
        lock.release()
    assert calls == [(None, True)]
    assert lock.acquire(timeout=TEST_TIMEOUT)
    report()
    assert calls == [(None, True)]
    lock.hold.mark_lost("for a test")
    report()
    assert calls == [(None, True), (lock.token, True)]
    with pytest.raises(LockLost):
        lock.release()
    assert len(calls) == 2


def test_a_loss_that_was_not_reported_yet(backend, unique, report):
    """A lost lease that another has replaced is reported, and the loss of the other is, too."""
    calls = []
    lock = backend.lock(unique, ttl=60, on_lost=lambda _: calls.append(1))
    assert lock.acquire()
    lock.hold.mark_lost("for a test")
    assert lock.acquire(timeout=TEST_TIMEOUT)
    report()
    assert len(calls) == 1
    lock.hold.mark_lost("for a test")
    report()
    assert len(calls) == 2


def test_a_late_reply_to_a_release(backend, unique, monkeypatch):
    """A release that notices the loss of its lease does not mark the handle's next lease as lost."""
    lock = backend.lock(unique, ttl=60, auto_renew=False)
    assert lock.acquire()
    backend.force_release(unique)
    perform, replied, go_on = backend.perform, threading.Event(), threading.Event()

    def slow(request):
        reply = perform(request)
        replied.set()
        assert go_on.wait(TEST_TIMEOUT)
        return reply

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(backend, "perform", slow)
        releasing = pool.submit(lock.release)
        assert replied.wait(TEST_TIMEOUT)
        monkeypatch.setattr(backend, "perform", perform)
        assert lock.acquire(blocking=False)
        go_on.set()
        assert isinstance(releasing.exception(TEST_TIMEOUT), LockLost)
    lock.check()
    lock.release()


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
