"""fair_acquire.lua, and the wake-up of its queue by other scripts"""

from tests.scripts.conftest import OTHER, OWNER, RESERVED, TOKEN, now
from tests.scripts.queues.conftest import ANOTHER, lapse


def test_fair_reserved(redis, fair, keys):
    """A lock that is reserved for a waiter is free: the queue has the order."""
    redis.set(keys.lock, RESERVED)
    assert fair(wait=6_000) > 0


def test_late_repetition(redis, fair, keys):
    """A repeated request that arrives after an extension does not shorten the lease."""
    fair(ttl=60_000)
    assert fair(ttl=1_000) > 0
    assert redis.pttl(keys.lock) > 30_000


def test_fair_expired_entry_is_passed_over(redis, fair, release, line, woken, keys):
    """A waiter whose entry has expired is passed over, and keeps its place if it comes back."""
    fair(ANOTHER)
    fair(OTHER, wait=60_000)
    fair(TOKEN, wait=60_000)
    lapse(redis, keys, OTHER)
    fair(OTHER, wait=-60_000)
    assert line() == ["wb", "wa"]
    lapse(redis, keys, OTHER)
    release("fair_release", ANOTHER)
    assert woken() == "a"
    assert fair(TOKEN, wait=-60_000) > 0


def test_fair_expired_entry_loses_its_place(redis, fair, line, keys):
    """A waiter whose entry expired ten seconds ago loses its place."""
    fair(ANOTHER)
    fair(OTHER, wait=60_000)
    redis.zadd(keys.waiters, {OTHER[:16] + b" " + OWNER: now(redis) - 10_001})
    fair(TOKEN, wait=60_000)
    fair(TOKEN, wait=-60_000)
    redis.delete(keys.lock)
    assert fair(TOKEN, wait=-60_000) > 0
    assert line() == []


def test_fair_restored_lock_does_not_queue(fair, release):
    """A holder that restores its lock on a server without data does not queue."""
    fair(ANOTHER)
    fair(OTHER, wait=60_000)
    release("fair_release", ANOTHER)
    assert fair(order=0) > 0
