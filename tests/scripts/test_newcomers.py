"""Callers that come to a lock with waiters. One with time to wait queues behind them, others take what is free."""

import pytest

from tests.scripts.conftest import OTHER, RESERVED, TOKEN, WAITER, now


def reserved(redis, place):
    redis.set(place.lock, RESERVED, px=60_000)
    redis.zadd(place.waiters, {b"woken": now(redis) + 5_000})


@pytest.fixture
def arrange(redis, acquire, places):
    """By kind: let the lock be free, and have a waiter."""
    return {
        "mutex": lambda: reserved(redis, places[0]),
        "multi": lambda: reserved(redis, places[1]),
        "semaphore": lambda: (acquire("semaphore", OTHER, limit=2), redis.zadd(places[0].waiters, {b"woken": 9e15})),
        "timestamp": lambda: redis.zadd(places[0].waiters, {b"woken": 9e15}),
    }


@pytest.mark.parametrize("wait", [-6_000, 0], ids=["later", "without waiting"])
@pytest.mark.parametrize(
    ("kind", "left"), [("mutex", 60_000), ("multi", 60_000), ("semaphore", 100), ("timestamp", 100)]
)
def test_newcomer(redis, acquire, arrange, places, kind, left, wait):
    """A newcomer is listed and told when to ask again, and is granted when it does or if it can't wait."""
    arrange[kind]()
    place = places[kind == "multi"]
    before = redis.get(place.lock) if kind != "semaphore" else None
    answer = acquire(kind, wait=6_000, limit=2)
    assert (answer[0], left / 2 < answer[1] <= left) == (0, True)
    assert set(redis.zrange(place.waiters, 0, -1)) == {b"woken", WAITER}
    assert kind == "semaphore" or redis.get(place.lock) == before
    assert isinstance(acquire(kind, wait=wait, limit=2), int)
    assert redis.pttl(place.lock) <= 10_000


@pytest.mark.parametrize("kind", ["mutex", "semaphore"])
def test_lock_that_waiters_have_not_been_woken_for(redis, acquire, keys, kind):
    """It is free for all."""
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert acquire(kind, wait=6_000, limit=2) > 0


def test_all_attempts_are_one_waiter(redis, acquire, call, keys):
    """A waiter is listed once for all its attempts, and no longer after its grant or its removal."""
    attempts = [TOKEN[:16] + b"%08d" % number for number in range(4)]
    acquire("timestamp", OTHER)
    acquire("timestamp", attempts[0], wait=6_000)
    acquire("timestamp", attempts[1], wait=-6_000)
    assert redis.zrange(keys.waiters, 0, -1) == [WAITER]
    assert call("waiter_remove", (keys.lock, keys.waiters, keys.wake), WAITER, b"") == 1
    acquire("timestamp", attempts[2], wait=-6_000)
    redis.delete(keys.lock)
    assert acquire("timestamp", attempts[3], wait=-6_000) > 0
    assert not redis.exists(keys.waiters)


def test_expired_waiters(redis, acquire, keys):
    """A waiter whose entry has expired does not block newcomers."""
    redis.zadd(keys.waiters, {b"waits": 1})
    assert acquire("timestamp", wait=6_000) > 0
