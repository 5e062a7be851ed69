"""A release that gets no reply is repeated in the background until the lease must have ended."""

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.renewal.registry import renewal
from django_redlock.errors import LockUnavailable
from tests.support.locks import AdvancedClock
from tests.support.proxy import Proxy
from tests.support.service import poll


def test_a_lease_that_was_extended(start, redis_server):
    """The release of a lease that was extended beyond its ttl is repeated for as long as the lease may last."""
    proxy, clock = start(Proxy(redis_server.url)), AdvancedClock()
    backend = RedisBackend(proxy.url, node_timeout=10, clock=clock)
    lock = backend.lock("stock", ttl=20, auto_renew=False)
    assert lock.acquire(timeout=20)
    lock.extend(200)
    token = lock.token.encode()
    proxy.refuse()
    proxy.cut()
    with pytest.raises(LockUnavailable):
        lock.release()
    clock.ahead = 30
    due, _ = renewal.orphans[token]
    poll(lambda: renewal.orphans[token][0] != due, timeout=20, what="another try to release the lock")
    proxy.restore()
    poll(lambda: token not in renewal.orphans, timeout=20, what="the release")
    with redis_server.client() as client:
        assert not client.exists("redlock:{stock}")
    backend.close()


def test_a_stripe_that_is_switched(start, redis_server, unique):
    """After a switch() whose release got no reply, the handle holds nothing, and the block releases nothing."""
    proxy = start(Proxy(redis_server.url))
    backend = RedisBackend(proxy.url, node_timeout=10)
    with backend.striped(unique, 2, ttl=200) as lock:
        proxy.refuse()
        proxy.cut()
        with pytest.raises(LockUnavailable):
            lock.switch()
        assert lock.token is None
    proxy.restore()
    assert all(lock.acquire(timeout=20) for _ in range(2))
    lock.release(2)
    backend.close()
