"""`min_hold` and `every` when a release gets no reply: the release in the background keeps the lock, too."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.core.primitives.base import MAX_BLOCK
from django_redlock.errors import LockUnavailable
from tests.support.locks import new_lock
from tests.support.service import poll


@pytest.mark.parametrize("option", ["min_hold", "every"])
def test_unanswered_release(proxy, redis_server, client_of, unique, option):
    """After a release without a reply the lock is kept for the rest of the time."""
    client = client_of(RedisBackend(proxy.url, ttl=20, node_timeout=2))
    lock = client.lock(unique, auto_renew=False, **{option: 250})
    assert lock.acquire()
    with redis_server.client() as direct:
        direct.pexpire(f"redlock:{{{unique}}}", 20_000)
        proxy.drop("requests")
        with pytest.raises(LockUnavailable):
            lock.release()
        proxy.restore()
        poll(lambda: direct.pttl(f"redlock:{{{unique}}}") not in range(20_001), timeout=60, what="a release")
        assert direct.pttl(f"redlock:{{{unique}}}") > 20_000


def test_own_field_named_state(redis_url, client_of, unique):
    """A field `state` of the user's own owner stays as it is when the lock is released and kept."""
    backend = RedisBackend(redis_url, ttl=20, node_timeout=5)
    lock = client_of(backend).lock(unique, owner={"state": "running"}, min_hold=250)
    assert lock.acquire()
    lock.release()
    assert backend.describe(unique).owner.extra == {"state": "running"}


@pytest.mark.parametrize("kind", ["mutex", "rlock", "semaphore"])
@pytest.mark.parametrize("store", ["redis", "locmem"])
def test_waiters_learn_the_end(redis_url, unique, store, kind):
    """A waiter gets the lock when ``min_hold`` ends, not when it asks again for a lease that would be much longer."""
    make = {"redis": lambda: RedisBackend(redis_url, ttl=20, node_timeout=5), "locmem": lambda: LocMemBackend(unique)}
    backend, other = make[store](), make[store]()
    with ThreadPoolExecutor(1) as pool:
        with new_lock(kind, backend, unique, min_hold=0.3):
            waiting = pool.submit(new_lock(kind, other, unique).acquire, True, 60)
            poll(lambda: backend.describe(unique).waiters, timeout=60, what="a waiter")
        released = time.monotonic()
        assert waiting.result(60)
    assert time.monotonic() - released < MAX_BLOCK / 2
