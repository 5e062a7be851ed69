"""Locks that pass between older clients and this package."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.errors import LockLost

PATIENCE = 20


@pytest.mark.parametrize("read", [int, float])
def test_we_exclude_old_code(backend, old, read):
    """While we hold the lock old code can't acquire it, however it parses numbers; after our release it can."""
    with backend.lock("stock") as lock:
        assert not old(read=read).take()
        lock.check()
        assert lock.owned()
    assert old(read=read).take()


def test_old_code_replaces_us(backend, old, redis):
    """After we died and our lease ended old code acquires, and our late release leaves its lock alone."""
    lock = backend.lock("stock", ttl=0.3, auto_renew=False)
    lock.acquire()
    client, deadline = old(), time.monotonic() + PATIENCE
    while not client.take():
        assert time.monotonic() < deadline
    value = redis.get("stock")
    with pytest.raises(LockLost):
        lock.release()
    assert redis.get("stock") == value


def test_a_late_holder_of_old_code(backend, old):
    """An old client that is late by its own clock does not delete our lock."""
    client = old(clock=lambda: time.time() - 100)
    assert client.take()
    lock = backend.lock("stock")
    assert lock.acquire(False)
    client.clock = time.time
    client.release()
    assert lock.owned()


def test_a_waiter_sees_that_old_code_is_done(backend, old):
    """A waiter for a lock of old code, which sends no wake-ups, polls and acquires soon after the release."""
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
    """A renewal writes a later end, and the holder can still release the lock."""
    lock = backend.lock("stock", ttl=10)
    lock.acquire()
    before = int(redis.get("stock"))
    lock.extend(100)
    assert int(redis.get("stock")) > before
    assert lock.owned()
    lock.release()
    assert old().take()


def test_min_hold_holds_for_old_code(backend, old):
    """A lock that is kept by min_hold after its release excludes old code, too."""
    with backend.lock("stock", ttl=5, min_hold=60):
        pass
    assert not old().take()
    held = backend.describe("stock")
    assert held is not None
    assert held.remaining > 5
