"""fair_acquire.lua, and the wake-up of its queue by other scripts"""

from tests.scripts.conftest import OTHER, OWNER, RESERVED, TOKEN, VALUE, WAITER, now
from tests.scripts.queues.conftest import ANOTHER, lapse

DAY = 86_400_000


def test_fair_free(redis, fair, keys, dump):
    """A free lock is granted as a plain string, and the same token is granted again."""
    assert fair() // 1000 <= now(redis)
    assert fair() > 0
    assert dump() == {keys.lock: VALUE}
    assert 3_000 < redis.pttl(keys.lock) <= 10_000


def test_fair_reserved(redis, fair, keys):
    """A lock that is reserved for a waiter is free: the queue has the order."""
    redis.set(keys.lock, RESERVED)
    assert fair(wait=6_000) > 0


def test_late_repetition(redis, fair, keys):
    """A repeated request that arrives after an extension does not shorten the lease."""
    fair(ttl=60_000)
    assert fair(ttl=1_000) > 0
    assert redis.pttl(keys.lock) > 30_000


def test_fair_fencing(redis, fair, keys):
    """The fencing token grows, even above the server's clock."""
    redis.set(keys.fence, 9 * 10**15)
    assert fair(fencing=1)[:2] == [1, 9 * 10**15 + 1]
    assert redis.pttl(keys.fence) > DAY - 5_000


def test_fair_held(redis, fair, line, keys, dump):
    """A held lock is refused with its remaining lease and its owner, and a caller without time to wait leaves
    no entry.
    """
    fair(OTHER)
    refused, left, _, owner = fair()
    assert (refused, owner, 3_000 < left <= 10_000) == (0, OWNER, True)
    assert set(dump()) == {keys.lock}
    fair(wait=60_000)
    assert (line(), redis.zrange(keys.waiters, 0, -1)) == (["wa"], [WAITER])
    fair(wait=-1)
    assert set(dump()) == {keys.lock}


def test_fair_order(redis, fair, release, line, woken, keys):
    """The first waiter in the queue is woken, and only it is granted."""
    fair(ANOTHER)
    fair(OTHER, wait=60_000)
    fair(TOKEN, wait=60_000)
    fair(OTHER, wait=-60_000)
    assert line() == ["wb", "wa"]
    release("fair_release", ANOTHER)
    assert woken() == "b"
    refused, left, _, owner = fair(TOKEN, wait=-60_000)
    assert (refused, owner, 0 < left <= 60_000) == (0, b"", True)
    assert fair(b"d" * 24)[0] == 0
    assert fair(OTHER, wait=-60_000) > 0
    assert line() == ["wa"]
    release("fair_release", OTHER)
    assert woken() == "a"


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


def test_fair_force_release(fair, call, woken, keys):
    """A forced release wakes the first waiter in the queue."""
    fair(ANOTHER)
    fair(OTHER, wait=60_000)
    call("force_release", keys.of_queue, "")
    assert woken() == "b"


def test_fair_beside_others(redis, fair, call, release, woken, keys):
    """Waiters outside the queue are woken when the queue is empty."""
    fair(ANOTHER)
    call("mutex_acquire", keys.of_mutex, TOKEN, OWNER, 10_000, 0, 6_000)
    fair(OTHER, wait=60_000)
    release("fair_release", ANOTHER)
    assert (woken(), redis.llen(keys.wake)) == ("b", 0)
    assert 0 < redis.pttl(keys.lock) <= 100
    assert fair(OTHER, wait=-60_000) > 0
    release("fair_release", OTHER)
    assert (woken(), redis.llen(keys.wake)) == ("", 1)
