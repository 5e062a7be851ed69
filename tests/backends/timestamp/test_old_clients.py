"""Locks that pass between older clients and this package."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.core.flow.drivers import drive
from django_redlock.errors import LockLost

PATIENCE = 20


def test_old_code_excludes_us(backend, old, redis):
    """While old code holds the lock we don't get it, and leave its value as it is; then we do."""
    first, lock = old(), backend.lock("stock")
    assert first.take()
    value = redis.get("stock")
    assert not lock.acquire(False)
    assert not lock.acquire(timeout=0.05)
    assert redis.get("stock") == value
    first.release()
    assert lock.acquire(False)


@pytest.mark.parametrize("read", [int, float])
def test_we_exclude_old_code(backend, old, read):
    """While we hold the lock old code doesn't get it, however it reads numbers; then it does."""
    with backend.lock("stock") as lock:
        assert not old(read=read).take()
        lock.check()
        assert lock.owned()
    assert old(read=read).take()


def test_a_dead_holder_is_replaced(backend, dead, old):
    """C0 has died: we take the lock, and old code that comes later is refused."""
    lock = backend.lock("stock")
    assert lock.acquire(False)
    assert not old().take()
    assert lock.owned()


def test_old_code_replaces_us(backend, old, redis):
    """We have died: old code gets the lock when our lease has ended. Too late, we free nothing that is its."""
    lock = backend.lock("stock", ttl=0.1, auto_renew=False)
    lock.acquire()
    client, deadline = old(), time.monotonic() + PATIENCE
    while not client.take():
        assert time.monotonic() < deadline
    value = redis.get("stock")
    with pytest.raises(LockLost):
        lock.release()
    assert redis.get("stock") == value


def test_a_late_holder_of_old_code(backend, old):
    """A holder that is late by its own clock frees nothing of ours: it sees that its time has passed."""
    client = old(clock=lambda: time.time() - 100)
    assert client.take()
    lock = backend.lock("stock")
    assert lock.acquire(False)
    client.clock = time.time
    client.release()
    assert lock.owned()


def test_a_waiter_sees_that_old_code_is_done(backend, old):
    """Old code wakes nobody: one who waits for it looks again and again, and has the lock long before that ends."""
    client = old(ttl=100)
    assert client.take()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(backend.lock("stock").acquire, True, 60)
        until = time.monotonic() + PATIENCE
        while (held := backend.describe("stock")) is None or not held.waiters:
            assert time.monotonic() < until
        client.release()
        assert waiting.result(PATIENCE)


def test_renewal_writes_the_value_anew(backend, old, redis):
    """A renewed lock says a later end; its holder is recognised by the newest value, and can free it."""
    lock = backend.lock("stock", ttl=10)
    lock.acquire()
    before = int(redis.get("stock"))
    lock.extend(100)
    assert int(redis.get("stock")) > before
    assert lock.owned()
    lock.release()
    assert old().take()


def test_min_hold_holds_for_old_code(backend, old):
    """What is released early under min_hold stays taken for old code too."""
    with backend.lock("stock", ttl=5, min_hold=60):
        pass
    assert not old().take()
    held = backend.describe("stock")
    assert held is not None
    assert held.remaining > 5


def test_a_grant_of_which_nobody_learns(backend, redis):
    """What an interrupted caller may have got with any of its attempts is freed in the background."""
    lock = backend.lock("stock", auto_renew=False)
    assert lock.acquire()
    assert drive(backend.algorithm.cancel(lock.primitive, lock._lease.claim), backend.perform)
    assert not redis.exists("stock")
