"""Leases that are due at the same time are extended in few requests, and each has its own outcome."""

import contextlib

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.renewal.registry import BATCH, extend_all
from django_redlock.errors import LockLost


def test_each_lease_has_its_own_outcome(start, redis_url, redis_server, unique):
    """Of many leases, those of locks that were released by force are lost. All others are extended."""
    backend = start(contextlib.closing(RedisBackend(redis_url, ttl=200, node_timeout=20)))
    locks = [backend.lock(f"{unique}:{number}", fencing=number % 2 == 0) for number in range(134)]
    assert all(lock.acquire(False) for lock in locks)
    forced = {locks[1], locks[-1]}
    with redis_server.client() as direct:
        for lock in locks:
            direct.pexpire(lock.keys.lock, 100_000)
        for lock in forced:
            direct.delete(lock.keys.lock)
        extend_all([lock.hold for lock in locks])
        assert {lock for lock in locks if lock.lost} == forced
        kept = [lock for lock in locks if lock not in forced]
        assert min(direct.pttl(lock.keys.lock) for lock in kept) > 150_000
        for lock in kept:
            lock.release()


def test_a_lock_that_the_server_refuses_to_extend(start, redis_url, redis_server, unique):
    """An error reply about one lock, whose key has another type, does not stop the renewal of later batches."""
    backend = start(contextlib.closing(RedisBackend(redis_url, ttl=200, node_timeout=20)))
    refused, *others = [backend.lock(f"{unique}:{number}") for number in range(BATCH + 5)]
    assert all(lock.acquire(False) for lock in (refused, *others))
    with redis_server.client() as direct:
        direct.delete(refused.keys.lock)
        direct.hset(refused.keys.lock, "overwritten", "by another program")
        for lock in others:
            direct.pexpire(lock.keys.lock, 100_000)
        extend_all([lock.hold for lock in (refused, *others)])
        assert min(direct.pttl(lock.keys.lock) for lock in others) > 150_000
        direct.delete(refused.keys.lock)
    for lock in others:
        lock.release()
    with pytest.raises(LockLost):
        refused.release()
