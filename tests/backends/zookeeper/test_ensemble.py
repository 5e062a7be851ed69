"""An ensemble of three servers whose leader dies."""

import threading

import pytest

from django_redlock.errors import LockUnavailable
from tests.support.locks import granted
from tests.support.service import poll
from tests.support.zookeeper import Ensemble

from .tools import PATIENCE, until_in_line


@pytest.fixture
def ensemble(running):
    """An ensemble of three servers, all up."""
    ensemble = running(Ensemble)
    ensemble.resume()
    return ensemble


@pytest.fixture
def patient(connected, ensemble):
    """`patient()`: a backend whose session survives an election."""
    return lambda **options: connected(ensemble.hosts, **{"session_timeout": 60, "node_timeout": 10, **options})


def test_the_leader_dies_while_the_lock_is_held(ensemble, patient, unique):
    """When the leader dies the holder renews through the next leader, and another gets the lock after the release."""
    holder, other = patient(), patient()
    lock = holder.lock(unique, ttl=30, fencing=True)
    assert lock.acquire()
    first = lock.fencing_token
    ensemble.leader.kill()
    lock.extend()
    assert lock.owned()
    assert not lock.lost
    again = other.lock(unique, fencing=True)
    assert not again.acquire(False)
    lock.release()
    assert again.acquire(timeout=PATIENCE)
    assert again.fencing_token > first
    again.release()


def test_the_leader_dies_while_one_waits(ensemble, patient, unique, pool):
    """When the leader dies a waiter keeps its place and is woken through the next leader."""
    holder, other, late = patient(), patient(), patient()
    lock = holder.lock(unique, ttl=30)
    assert lock.acquire()
    waiting = other.lock(unique)
    answer = pool.submit(waiting.acquire, True, 60)
    until_in_line(holder, unique, 2)
    ensemble.leader.kill()
    last = pool.submit(late.lock(unique).acquire, True, 60)
    until_in_line(holder, unique, 3)
    assert not answer.done()
    lock.release()
    assert answer.result(PATIENCE)
    assert not last.done()
    waiting.release()
    assert last.result(PATIENCE)


def test_a_majority_dies(ensemble, patient, unique):
    """With one server of three left, attempts raise LockUnavailable, and leases end; later locks are granted again."""
    told = threading.Event()
    backend = patient(session_timeout=8, node_timeout=5)
    lock = backend.lock(unique, on_lost=lambda _: told.set())
    assert lock.acquire()
    leader = ensemble.leader
    follower = next(member for member in ensemble.members if member is not leader)
    follower.kill()
    leader.kill()
    with pytest.raises(LockUnavailable):
        backend.lock("another").acquire(timeout=3)
    assert told.wait(PATIENCE)
    assert lock.lost
    ensemble.resume()
    poll(lambda: granted(backend, unique), timeout=PATIENCE, what="a grant by the two that are back and the third")
