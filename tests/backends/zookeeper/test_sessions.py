"""The end of a ZooKeeper session."""

from __future__ import annotations

import threading
import time

import pytest

from django_redlock.errors import LockLost
from tests.backends.zookeeper_workers import hold
from tests.support.processes import Worker
from tests.support.service import poll

from .tools import PATIENCE, until_in_line


def test_session_expiry_is_told_at_once(zookeeper, backend, other, unique):
    """When the server ends the session every lock of it is lost at that moment, long before its lease ends."""
    told, left = threading.Event(), []

    def on_lost(lock):
        left.append(lock._lease.valid_until - time.monotonic())
        told.set()

    lock = backend.lock(unique, ttl=300, auto_renew=False, on_lost=on_lost)
    lock.acquire()
    assert not lock.lost
    zookeeper.expire(backend._session.client)
    assert told.wait(PATIENCE)
    assert left[0] > 0
    assert lock.lost
    with pytest.raises(LockLost):
        lock.check()
    following = other.lock(unique)
    assert following.acquire(timeout=PATIENCE)
    with pytest.raises(LockLost):
        lock.release()
    following.check()
    assert following.owned()


def test_a_new_session(zookeeper, backend, unique):
    """After that the same handle takes the lock in a new session."""
    lock = backend.lock(unique)
    lock.acquire()
    zookeeper.expire(backend._session.client)
    poll(lambda: lock.lost, timeout=PATIENCE, what="the loss")
    assert lock.acquire(timeout=PATIENCE)
    lock.check()
    lock.extend()
    lock.release()


def test_a_waiter_whose_session_ends(zookeeper, backend, other, unique, pool):
    """It joins the line again in its new session, at the end, and gets the lock."""
    first = other.lock(unique)
    first.acquire()
    waiting = pool.submit(backend.lock(unique).acquire, True, PATIENCE)
    until_in_line(other, unique, 2)
    zookeeper.expire(backend._session.client)
    until_in_line(other, unique, 2)
    first.release()
    assert waiting.result(PATIENCE) is True


def test_a_holder_that_is_killed(zookeeper, backend, unique, start):
    """kill -9: the servers end its session, and one who waits has the lock."""
    worker = start(Worker(hold, zookeeper.hosts, unique, 1))
    worker.expect("held")
    assert not backend.lock(unique).acquire(False)
    worker.kill()
    assert backend.lock(unique).acquire(timeout=PATIENCE)


def test_a_holder_that_is_paused(zookeeper, backend, unique, start):
    """SIGSTOP beyond the session: another has the lock. The first knows that it has lost it before it asks anybody."""
    worker = start(Worker(hold, zookeeper.hosts, unique, 1))
    worker.expect("held")
    worker.pause()
    following = backend.lock(unique)
    assert following.acquire(timeout=PATIENCE)
    worker.tell("look")
    worker.resume()
    assert worker.expect("looked") == {"lost": True, "released": False}
    following.check()
    assert following.owned()
