"""Leases and their renewal."""

import contextlib

import pytest

from django_redlock.core.values import Lease
from django_redlock.errors import LockError, LockLost
from tests.support.locks import AdvancedClock
from tests.support.service import poll

from .tools import PATIENCE


@pytest.mark.parametrize(("asked", "granted"), [(100, 60), (10, 10), (0.01, 0.4)])
def test_the_granted_session_timeout_counts(zookeeper, connected, unique, asked, granted):
    """A lease lasts for half of the session timeout that the server has granted."""
    backend = connected(zookeeper.hosts, session_timeout=asked, ttl=300)
    lock = backend.lock(unique, auto_renew=False)

    def lasts():
        left = 0
        with contextlib.suppress(LockError):  # the short lease, or the session, may have ended
            assert lock.acquire(timeout=PATIENCE)
            left = lock.remaining
            lock.release()
        assert left < granted * 0.5
        return left > granted * 0.3

    poll(lasts, timeout=PATIENCE, what="a lease that was looked at in time")


def test_close_keeps_what_is_held(backend, other, unique):
    """close() ends the session only if no lock is held."""
    with backend.lock(unique) as lock:
        backend.close()
        assert not other.lock(unique).acquire(False)
        lock.extend()
    session = backend._session
    backend.close()
    assert not session.connected
    with backend.lock(unique):
        pass


def test_many_are_renewed_together(backend, unique):
    """extend_many() sends all requests before it waits, and tells lost leases from the others."""
    locks = [backend.lock(f"{unique}:{number}", auto_renew=False) for number in range(20)]
    for lock in locks:
        lock.acquire()
    assert backend.force_release(locks[7].name)
    leases = [(lock.hold.lease, 30) for lock in locks]
    outcomes = backend.drive(backend.algorithm.extend_many(locks[0].primitive, leases))
    assert [number for number, outcome in enumerate(outcomes) if outcome is None] == [7]
    assert all(
        outcome.valid_until > lease.valid_until for outcome, (lease, _) in zip(outcomes, leases, strict=True) if outcome
    )


@pytest.fixture
def clock():
    return AdvancedClock()


def on_next_reply(backend, act):
    """Call ``act`` when the next reply to ``backend`` has arrived, while its caller still waits for the reply."""
    session, answer = backend._session, backend._session.answer

    def late(pending, until):
        session.answer = answer
        reply = answer(pending, until)
        act()
        return reply

    session.answer = late


def let_end(backend, clock, lock, following, *others):
    clock.ahead = 20
    for each in (lock, *others):
        backend.end(each.hold.lease.claim)  # as the renewal thread does
    assert following.acquire(timeout=PATIENCE)


def test_a_reply_after_the_removal_of_the_znode(zookeeper, connected, other, unique, clock):
    """An extension whose reply is read after the process has removed the znode is a lost lease."""
    backend = connected(zookeeper.hosts, session_timeout=60, node_timeout=10, clock=clock)
    lock, following = backend.lock(unique, ttl=10, auto_renew=False), other.lock(unique)
    assert lock.acquire()
    on_next_reply(backend, lambda: let_end(backend, clock, lock, following))
    with pytest.raises(LockLost):
        lock.extend(30)
    assert lock.lost
    following.check()
    assert following.owned()


def test_leases_that_end_while_their_replies_are_awaited(zookeeper, connected, other, unique, clock):
    """Leases that are extended together don't end while the reply to the first of them is late."""
    backend = connected(zookeeper.hosts, session_timeout=60, node_timeout=PATIENCE, clock=clock)
    first, second, ending = (backend.lock(f"{unique}:{number}", ttl=10, auto_renew=False) for number in range(3))
    for lock in (first, second, ending):
        assert lock.acquire()
    on_next_reply(backend, lambda: let_end(backend, clock, ending, other.lock(ending.name), first, second))
    outcomes = backend.extend_many([(lock.hold.lease, 300) for lock in (first, second)])
    assert all(isinstance(outcome, Lease) for outcome in outcomes)
    assert not any(other.lock(lock.name).acquire(False) for lock in (first, second))
