"""Renewals and extensions of one lease never run at the same time, and one without a reply may arrive later."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.core.background.work import BATCH, extend_all
from django_redlock.core.flow.requests import Batch, Fault, SendToAll
from django_redlock.errors import LockLost
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.locks import renew_now
from tests.support.service import poll

TTL, LONGER = 12, 40
BACKENDS = {
    "redis": lambda url: RedisBackend(url, ttl=TTL, max_ttl=60, node_timeout=3.5),
    "quorum": lambda url: RedlockBackend([url], ttl=TTL, max_ttl=60, node_timeout=3.5, quarantine=False),
}


@pytest.fixture(params=BACKENDS)
def backend(request, redis_url, unique):
    """A backend whose first renewal is intercepted: ``caught`` has it, ``answered()`` delivers the reply."""
    backend = BACKENDS[request.param](redis_url)
    perform, backend.caught = backend.perform, []

    def catch(request):
        asks = request.requests if type(request) is SendToAll else [request]
        runs = [ask.calls[-1] if type(ask) is Batch else ask for ask in asks]
        if not backend.caught and getattr(runs[0], "script", None) and runs[0].script.name.endswith("_extend"):
            backend.caught.append(lambda: perform(request))
            return backend.answered(request)
        return perform(request)

    backend.perform = catch
    yield backend
    backend.close()


def until_renewed(backend, lock):
    """Let a renewal begin, which is intercepted."""
    renew_now(lock)
    poll(lambda: backend.caught, timeout=20, what="a renewal")


@pytest.fixture
def left(redis_server, unique):
    """A function that returns the seconds for which the server keeps the lock."""
    with redis_server.client() as direct:
        yield lambda: direct.pttl(f"redlock:{{{unique}}}") / 1000


def test_late_renewal_does_not_shorten_the_lease(backend, left, unique):
    """A renewal that was given up and arrives later does not end the lease before the holder expects it."""
    fault = Fault(TimeoutError("no reply in time"))
    backend.answered = lambda request: [fault] * len(request.requests if type(request) is SendToAll else request.calls)
    with backend.lock(unique) as lock:
        until_renewed(backend, lock)
        assert lock.extend(LONGER) <= TTL
        backend.caught[0]()
        kept = left()
        assert 0 < lock.remaining <= kept <= TTL


def test_extend_waits_for_a_renewal(backend, left, unique):
    """extend() waits for a renewal that is under way, and then the lease has the requested length."""
    send = threading.Event()
    backend.answered = lambda _: send.wait(TEST_TIMEOUT) and backend.caught[0]()
    with backend.lock(unique) as lock, ThreadPoolExecutor(1) as pool:
        until_renewed(backend, lock)
        extending = pool.submit(lock.extend, LONGER)
        poll(lambda: lock.hold._waiting, timeout=20, what="a thread that waits")
        assert left() <= TTL
        send.set()
        assert extending.result(TEST_TIMEOUT) > TTL
        kept = left()
        assert TTL < lock.remaining <= kept


def test_no_renewal_during_an_extension(backend, left, unique):
    """A lock is not renewed while it is extended, because two requests might arrive in any order."""
    send = threading.Event()
    backend.answered = lambda _: send.wait(TEST_TIMEOUT) and backend.caught[0]()
    with backend.lock(unique) as lock, ThreadPoolExecutor(1) as pool:
        extending = pool.submit(lock.extend, LONGER)
        poll(lambda: backend.caught, timeout=20, what="an extension")
        assert lock.hold.begin_renewal() is None
        send.set()
        assert extending.result(TEST_TIMEOUT) > TTL
        renewing = lock.hold.begin_renewal()
        assert renewing is not None
        lock.hold.on_extended(renewing, Fault(TimeoutError()))


def test_extend_waits_no_longer_than_the_lease(backend, unique):
    send = threading.Event()
    backend.answered = lambda _: send.wait(TEST_TIMEOUT) and backend.caught[0]()
    lock = backend.lock(unique, ttl=3, on_lost="warn")
    with lock:
        until_renewed(backend, lock)
        with pytest.raises(LockLost):
            lock.extend(LONGER)
        send.set()


def test_a_lock_that_the_server_refuses_to_extend(backend_at, redis_url, redis_server, unique):
    """An error reply about one lock, whose key has another type, does not stop the renewal of later batches."""
    backend = backend_at(redis_url, ttl=200, node_timeout=20)
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
