"""A `StorageBackend` whose functions fail: the flows handle it like a Redis that fails."""

import asyncio
import threading

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.core.flow.requests import Fault
from django_redlock.errors import LockLost, LockUnavailable
from tests.support.service import poll


class Failing(LocMemBackend):
    """Performs each operation, and then raises an error while it is `down`."""

    does_io = True
    down = frozenset()

    def _told(self, what, name, answer):
        if name in self.down or what in self.down:
            raise LockUnavailable(name, "is down")
        return answer

    def attempt(self, primitive, claim, *more):
        return self._told("attempt", claim.name, super().attempt(primitive, claim, *more))

    def extend(self, lease, ttl):
        return self._told("prolong", lease.claim.name, super().extend(lease, ttl))

    def release(self, claim, keep=0.0):
        return self._told("free", claim.name, super().release(claim, keep))


@pytest.fixture
def backend(unique):
    return Failing(unique)


def test_a_failure_concerns_one_renewal(backend):
    locks = [backend.lock(name, auto_renew=False) for name in "abc"]
    for lock in locks:
        lock.acquire()
    backend.down = {"b"}
    leases = [(lock.hold.lease, 9) for lock in locks]
    outcomes = backend.drive(backend.algorithm.extend_many(locks[0].primitive, leases))
    assert [isinstance(outcome, Fault) for outcome in outcomes] == [False, True, False]


def test_lost_and_down(backend):
    """A release of an expired lease raises LockLost, even if the store is not reachable."""
    now = 100.0
    backend.clock = lambda: now
    lock = backend.lock("a", ttl=10, auto_renew=False)
    lock.acquire()
    now, backend.down = 200.0, {"free"}
    with pytest.raises(LockLost):
        lock.release()


def test_health(backend):
    """health() acquires a lock, and reports the failure of a store that is down."""
    assert [row["ok"] for row in backend.health()] == [True]
    backend.down = {"attempt"}
    (row,) = backend.health()
    assert (row["ok"], row["problems"]) == (False, ["grants no lock: is down"])
    poll(lambda: not backend.held(), timeout=20, what="the release of the probe")


def test_a_grant_whose_reply_is_lost(backend):
    backend.down = {"attempt"}
    with pytest.raises(LockUnavailable):
        backend.lock("a").acquire(False)
    poll(lambda: backend.describe("a") is None, timeout=20, what="a free lock")


def test_a_release_after_the_loop_of_a_waiter_has_ended(unique):
    """A release passes over an asyncio waiter whose event loop was closed."""
    backend = LocMemBackend(unique)
    held = backend.lock(unique)
    held.acquire()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(backend.lock(unique).aacquire())
    loop.run_until_complete(asyncio.sleep(0))
    assert backend.describe(unique).waiters == 1
    loop.close()
    held.release()
    assert backend.lock(unique).acquire(blocking=False)
    waiting._log_destroy_pending = False


async def test_cancelled_while_a_thread_asks(backend):
    """A cancelled task ends at once, and a lock that its thread acquires afterwards is released."""
    begun, go_on, freed = threading.Event(), threading.Event(), []
    attempt, free = backend.attempt, backend.release

    def slow(*args):
        begun.set()
        go_on.wait(20)
        return attempt(*args)

    backend.attempt, backend.release = slow, lambda *args: (freed.append(args), free(*args))[1]

    task = asyncio.create_task(backend.lock("a").aacquire(False))
    await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.done()
    assert task.cancelled()
    await asyncio.to_thread(poll, lambda: freed, timeout=20, what="the first release, which comes too early")
    go_on.set()
    poll(lambda: backend.describe("a") is None and len(freed) > 1, timeout=20, what="the end of what was taken")


@pytest.mark.parametrize("method", ["aacquire", "alocked"])
def test_without_asyncio(backend, method):
    """An event loop other than asyncio's raises an error that says what is supported."""
    trio = pytest.importorskip("trio")
    with pytest.raises(RuntimeError, match="for asyncio only"):
        trio.run(getattr(backend.lock("a"), method))
