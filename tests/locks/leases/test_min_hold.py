"""`min_hold` and `every` when a release gets no reply: the release in the background keeps the lock, too."""

import threading
import time

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockUnavailable
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


@pytest.mark.parametrize("kind", ["lock", "rlock", "semaphore"])
def test_waiters_learn_the_end(redis_url, unique, kind):
    """A waiter gets the lock when ``min_hold`` ends, not when it asks again for a lease that would be much longer."""
    backend, other = (RedisBackend(redis_url, ttl=20, node_timeout=5) for _ in range(2))
    limit = {"limit": 1} if kind == "semaphore" else {}
    waiting = getattr(other, kind)(unique, **limit)
    granted: list[float] = []

    def wait():
        with waiting:
            granted.append(time.monotonic())

    with getattr(backend, kind)(unique, min_hold=0.3, **limit):
        thread = threading.Thread(target=wait)
        thread.start()
        poll(lambda: backend.describe(unique).waiters, timeout=60, what="a waiter")
    released = time.monotonic()
    thread.join()
    assert granted[0] - released < 3
