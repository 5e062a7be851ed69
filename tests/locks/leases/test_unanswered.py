"""Extensions and releases without a reply: the server may have run them or not."""

import contextlib

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.core.background.work import background
from django_redlock.errors import LockUnavailable
from tests.support.locks import AdvancedClock, acquired
from tests.support.proxy import Proxy
from tests.support.service import poll

BACKENDS = {
    "redis": lambda url: RedisBackend(url, ttl=60, node_timeout=1),
    "quorum": lambda url: RedlockBackend([url], ttl=60, node_timeout=1, quarantine=False),
}


@pytest.fixture(params=BACKENDS)
def cut(request, start, redis_server, client_of):
    proxy = start(Proxy(redis_server.url))
    client = client_of(BACKENDS[request.param](proxy.url))
    return client, proxy


@pytest.mark.parametrize("way", ["requests", "replies"])
def test_a_shorter_lease_counts_before_its_answer(cut, way):
    """After an unanswered extension to a shorter ttl, the holder and its renewal rely on the shorter lease only."""
    client, proxy = cut
    lock = client.lock("stock", auto_renew=True)
    poll(lambda: acquired(lock), timeout=20, what="the lock")
    assert lock.remaining > 30
    proxy.drop(way)
    with pytest.raises(LockUnavailable):
        lock.extend(30)
    assert lock.remaining <= 30
    proxy.restore()
    end = lock.hold.lease.valid_until
    poll(lambda: lock.hold.lease.valid_until > end, timeout=60, what="a renewal")
    assert lock.remaining <= 30
    with contextlib.suppress(LockUnavailable):
        lock.release()


def test_a_longer_lease_counts_after_its_answer(cut):
    """After an unanswered extension to a longer ttl the holder relies on the earlier lease."""
    client, proxy = cut
    lock = client.lock("stock", ttl=20, auto_renew=False)
    poll(lambda: acquired(lock), timeout=20, what="the lock")
    proxy.drop()
    with pytest.raises(LockUnavailable):
        lock.extend(60)
    assert lock.remaining <= 20


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
    due, _ = background.orphans[token]
    poll(lambda: background.orphans[token][0] != due, timeout=20, what="another try to release the lock")
    proxy.restore()
    poll(lambda: token not in background.orphans, timeout=20, what="the release")
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
