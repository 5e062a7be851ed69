"""A clock that tests advance, and locks in memory that follow it. No test sleeps here."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.testing import Clock
from tests.support.service import poll


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def backend(clock, unique):
    return LocMemBackend(unique, clock=clock, ttl=10)


def waiters(backend):
    return sum(held.waiters for held in backend.held())


@pytest.fixture
def elsewhere(backend):
    """`elsewhere(function)`: run it in a thread, and return when it waits for a lock."""
    with ThreadPoolExecutor(8) as pool:

        def run(function):
            before = waiters(backend)
            future = pool.submit(function)
            poll(lambda: waiters(backend) > before, timeout=20, what="a waiter")
            return future

        yield run


def take(backend, **options):
    lock = backend.lock("x", **options)
    assert lock.acquire(blocking=False)
    return lock


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf")])
def test_only_forward(clock, wrong):
    with pytest.raises(ValueError, match="positive number of seconds"):
        clock.advance(wrong)


def test_leases(clock, backend):
    """A lease ends when its time has passed by the clock, and the listing agrees."""
    held = take(backend, ttl=100, auto_renew=False)
    clock.advance(80)
    [listed] = backend.held()
    assert 0 < listed.remaining <= 20
    assert 0 < held.remaining <= 20
    assert not held.lost
    clock.advance(21)
    assert held.lost
    assert backend.held() == []
    assert backend.lock("x").acquire(blocking=False)


def test_renewed_lock_outlasts_small_steps(clock, backend):
    """A renewed lock outlasts any number of steps that are shorter than the lease."""
    held = take(backend, ttl=100)
    for _ in range(10):
        clock.advance(60)
        assert held.remaining > 80
    clock.advance(20)
    assert held.remaining <= 80  # not before it is due
    held.release()


def test_step_beyond_the_lease(clock, backend, caplog):
    """A step beyond the lease ends it, as for a process that was stopped, and the holder learns of it at once."""
    notified = threading.Event()
    held = take(backend, on_lost=lambda _lock: notified.set())
    with caplog.at_level(logging.WARNING, "django_redlock"):
        clock.advance(11)
        assert notified.wait(20)
    assert held.lost


def test_waiters_give_up(clock, backend, elsewhere):
    """A waiter gives up when its timeout has passed by the clock."""
    held = take(backend, ttl=100)
    waiter = elsewhere(lambda: backend.lock("x").acquire(timeout=600))
    for _ in range(9):
        clock.advance(60)
    assert not waiter.done()
    clock.advance(61)
    assert waiter.result(20) is False
    held.release()


def test_asyncio(clock, backend):
    """Waiting tasks follow the clock, too."""

    async def run():
        held = backend.lock("x", ttl=100, auto_renew=False)
        await held.aacquire()
        patient = asyncio.create_task(backend.lock("x").aacquire(timeout=600))
        hurried = asyncio.create_task(backend.lock("x").aacquire(timeout=50))
        both_wait = partial(poll, lambda: waiters(backend) == 2, timeout=20, what="two waiters")
        await asyncio.to_thread(both_wait)
        async with asyncio.timeout(20):
            clock.advance(60)
            assert await hurried is False
            clock.advance(60)
            assert await patient is True

    asyncio.run(run())
    assert waiters(backend) == 0
