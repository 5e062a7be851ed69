"""The end of a ZooKeeper session."""

import threading
import time

import pytest

from django_redlock.backends.zookeeper.session import Session
from django_redlock.errors import LockLost, LockUnavailable
from tests.support.processes import Worker
from tests.support.proxy import Proxy
from tests.support.service import poll
from tests.support.zookeeper import expire

from .tools import PATIENCE, hold, until_in_line


def test_session_expiry_is_told_at_once(zookeeper, backend, other, unique):
    """When the server ends a session its locks are lost at once. The same handle acquires in a new session."""
    told, left = threading.Event(), []

    def on_lost(lock):
        left.append(lock.hold.lease.valid_until - time.monotonic())
        told.set()

    lock = backend.lock(unique, ttl=300, auto_renew=False, on_lost=on_lost)
    lock.acquire()
    assert not lock.lost
    expire(zookeeper.hosts, backend._session.client)
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


def test_a_waiter_whose_session_ends(zookeeper, backend, other, unique, pool):
    """A waiter whose session ends joins the end of the queue in a new session and gets the lock."""
    first = other.lock(unique)
    first.acquire()
    waiting = pool.submit(backend.lock(unique).acquire, True, PATIENCE)
    until_in_line(other, unique, 2)
    expire(zookeeper.hosts, backend._session.client)
    until_in_line(other, unique, 2)
    first.release()
    assert waiting.result(PATIENCE) is True


def test_a_session_ends_while_acquire_waits_for_the_connection(zookeeper, start, connected, other, unique, pool):
    """acquire() returns no lease whose znode is about to be deleted."""
    proxy = start(Proxy(zookeeper.hosts))
    backend = connected(proxy.url, session_timeout=60, connect_timeout=PATIENCE, node_timeout=PATIENCE)
    with backend.lock(unique):
        pass
    client = backend._session.client
    proxy.refuse()
    expire(zookeeper.hosts, client)
    poll(lambda: not client.connected, timeout=PATIENCE, what="the end of the connection")
    waiting = pool.submit(backend.lock(unique).acquire)
    poll(lambda: backend._contenders, timeout=PATIENCE, what="a contender that waits for the connection")
    proxy.restore()
    with pytest.raises(LockUnavailable, match="session has ended"):
        waiting.result(PATIENCE)
    assert other.lock(unique).acquire(timeout=PATIENCE)


def test_a_session_ends_and_the_next_does_not_reply(backend, other, unique, monkeypatch):
    """A znode that the next session has created is removed, although nothing has confirmed it."""
    with backend.lock(unique):
        pass
    send = Session.send

    def silent(self, method, *args, **options):
        if method == "create":
            backend._contenders.end_session()
            send(self, method, *args, **options).wait(PATIENCE)
            return self.client.handler.async_result()
        return send(self, method, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "send", silent)
        with pytest.raises(LockUnavailable):
            backend.lock(unique).acquire(timeout=1)
    assert other.lock(unique).acquire(timeout=PATIENCE)


def test_a_closed_session_ends_after_the_next_has_begun(zookeeper, start, connected, other, unique, pool):
    """close() may end its session late, and takes no lock of the next session."""
    proxy = start(Proxy(zookeeper.hosts))
    backend = connected(proxy.url, session_timeout=60, node_timeout=PATIENCE)
    with backend.lock(unique):
        pass
    closed = backend._session
    proxy.hold()
    closing = pool.submit(backend.close)
    poll(lambda: backend._session is None, timeout=PATIENCE, what="the beginning of close()")
    backend.hosts = zookeeper.hosts
    lock = backend.lock(unique)
    assert lock.acquire(timeout=PATIENCE)
    proxy.restore()
    closing.result(PATIENCE)
    poll(lambda: closed.broken, timeout=PATIENCE, what="the end of the closed session")
    assert not lock.lost
    lock.release()
    assert other.lock(unique).acquire(timeout=PATIENCE)


def test_a_holder_that_is_killed(zookeeper, backend, unique, start):
    """After kill -9 of the holder the servers end its session, and a waiter gets the lock."""
    worker = start(Worker(hold, zookeeper.hosts, unique, 4))
    worker.expect("held")
    assert not backend.lock(unique).acquire(False)
    worker.kill()
    assert backend.lock(unique).acquire(timeout=PATIENCE)


def test_a_holder_that_is_paused(zookeeper, backend, unique, start):
    """A holder that was paused beyond its session knows that its lock is lost before it sends a request."""
    worker = start(Worker(hold, zookeeper.hosts, unique, 4))
    worker.expect("held")
    worker.pause()
    following = backend.lock(unique)
    assert following.acquire(timeout=PATIENCE)
    worker.tell("look")
    worker.resume()
    assert worker.expect("looked") == {"lost": True, "released": False}
    following.check()
    assert following.owned()
