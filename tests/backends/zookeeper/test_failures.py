"""Servers and networks that fail."""

import functools
import threading
import time

import pytest

from django_redlock.errors import LockUnavailable
from tests.support.locks import acquired, granted
from tests.support.proxy import Proxy
from tests.support.service import poll

from .tools import PATIENCE, paused, until_in_line


def test_a_server_that_is_killed(own, connected, unique):
    """After kill -9 of the server operations raise LockUnavailable, and the lease is lost at its end by our clock."""
    backend = connected(own.hosts, session_timeout=4, connect_timeout=1, node_timeout=1)
    poll(lambda: granted(backend, "first"), timeout=PATIENCE, what="the first connection")
    told = threading.Event()
    lock = backend.lock(unique, on_lost=lambda _: told.set())
    poll(lambda: acquired(lock), timeout=PATIENCE, what="a reply in time")
    own.kill()
    with pytest.raises(LockUnavailable, match=own.hosts) as caught:
        backend.lock("another").acquire(timeout=5)
    assert (caught.value.name, list(caught.value.errors)) == ("another", [own.hosts])
    for ask in (backend.held, lock.locked, functools.partial(backend.force_release, unique)):
        with pytest.raises(LockUnavailable):
            ask()
    assert told.wait(PATIENCE)
    assert lock.lost
    (row,) = backend.health()
    assert (row["ok"], row["node"]) == (False, own.hosts)
    own.start()
    poll(lambda: granted(backend, "another"), timeout=PATIENCE, what="a server that came back")


def test_a_renewal_waits_for_no_connection(own, connected, unique):
    """While the renewal of a long lease fails, the end of a shorter lease is reported at once."""
    backend = connected(own.hosts, session_timeout=60, connect_timeout=30)
    told = threading.Event()
    renewed = backend.lock(unique, ttl=6)
    ending = backend.lock("ending", ttl=3, auto_renew=False, on_lost=lambda _: told.set())
    poll(lambda: acquired(renewed) and acquired(ending), timeout=PATIENCE, what="a reply in time")
    own.kill()
    assert told.wait(PATIENCE)
    assert not renewed.lost


def test_a_server_that_is_restarted(own, connected, unique, pool):
    """A restart within the session loses nothing: the holder keeps its lock, and the waiter its place."""
    patient = functools.partial(connected, own.hosts, session_timeout=60, connect_timeout=30, node_timeout=5)
    backend, other = patient(), patient()
    lock = backend.lock(unique, ttl=30)
    lock.acquire()
    waiting = pool.submit(other.lock(unique).acquire, True, 60)
    until_in_line(backend, unique, 2)
    own.kill()
    own.start()
    lock.extend()
    lock.check()
    until_in_line(backend, unique, 2)
    assert not waiting.done()
    lock.release()
    assert waiting.result(PATIENCE) is True


def test_a_server_that_accepts_and_says_nothing(proxy, connected, unique):
    """A server that accepts connections without replying is tried again long before the session ends."""
    backend = connected(proxy.url, session_timeout=60, node_timeout=0.5, connect_timeout=2)
    proxy.drop()
    with pytest.raises(LockUnavailable):
        backend.lock(unique).acquire(False)
    poll(lambda: proxy.accepted > 1, timeout=PATIENCE, what="another try")
    proxy.restore()
    poll(lambda: granted(backend, unique), timeout=PATIENCE, what="a connection")


def test_a_server_that_hangs(own, connected, unique):
    """On a hung server every call ends, and znodes that are created later are removed."""
    backend = connected(own.hosts, session_timeout=30, connect_timeout=5, node_timeout=5)
    with backend.lock(unique):
        pass
    paused(own)
    with pytest.raises(LockUnavailable):
        backend.lock(unique).acquire(False)
    with pytest.raises(LockUnavailable):
        backend.lock(unique).acquire(timeout=0.3)
    own.resume()
    poll(lambda: not backend._contenders and backend.describe(unique) is None, timeout=PATIENCE, what="an empty line")
    assert backend.lock(unique).acquire(False)


def test_never_connected(connected, unique, own):
    """Without a server LockUnavailable is raised after connect_timeout, and the backend works once there is one."""
    own.kill()
    backend = connected(own.hosts, connect_timeout=1)
    for _ in range(2):
        with pytest.raises(LockUnavailable, match="not connected"):
            backend.lock(unique).acquire()
    own.start()
    poll(lambda: granted(backend, unique), timeout=PATIENCE, what="the first connection")


@pytest.fixture
def proxy(start, zookeeper):
    return start(Proxy(zookeeper.hosts))


def test_a_lost_answer_to_create(proxy, connected, witness, unique):
    """A znode whose creation was not confirmed is found by its name and not created twice."""
    backend = connected(proxy.url)
    with backend.lock(unique):
        pass
    lost = proxy.lose_next_reply(unique.encode() + b"/")
    lock = backend.lock(unique, fencing=True)
    assert lock.acquire(timeout=PATIENCE)
    assert lost.is_set()
    path = backend._recipe.path(unique)
    assert len(witness.get_children(path)) == 1
    assert lock.fencing_token == witness.exists(f"{path}/{witness.get_children(path)[0]}").czxid
    lock.release()
    assert witness.get_children(path) == []


def test_a_lost_answer_and_no_time(proxy, connected, witness, unique):
    """A znode whose creation was not confirmed before the timeout is removed once the server is reachable."""
    backend = connected(proxy.url)
    with backend.lock(unique):
        pass
    lost = proxy.lose_next_reply(unique.encode() + b"/")
    proxy.refuse()
    with pytest.raises(LockUnavailable):
        backend.lock(unique).acquire(timeout=3)
    assert lost.is_set()
    assert len(witness.get_children(backend._recipe.path(unique))) == 1
    proxy.restore()
    poll(lambda: not witness.get_children(backend._recipe.path(unique)), timeout=PATIENCE, what="an empty line")


def test_a_lost_answer_to_release(proxy, connected, other, unique):
    """A release that was not confirmed raises LockUnavailable, and the lock is free."""
    backend = connected(proxy.url)
    lock = backend.lock(unique)
    lock.acquire()
    lost = proxy.lose_next_reply(unique.encode())
    with pytest.raises(LockUnavailable):
        lock.release()
    assert lost.is_set()
    assert other.lock(unique).acquire(timeout=PATIENCE)


def test_a_network_that_is_silent(proxy, connected, zookeeper, other, unique):
    """When the network drops all packets, the holder's lease ends before another client gets the lock."""
    backend = connected(proxy.url, session_timeout=8, node_timeout=5)
    lost_at = []
    lock = backend.lock(unique, on_lost=lambda _: lost_at.append(time.monotonic()))
    lock.acquire()
    proxy.drop()
    assert other.lock(unique).acquire(timeout=PATIENCE)
    granted_at = time.monotonic()
    assert lock.lost
    poll(lambda: lost_at, timeout=PATIENCE, what="on_lost")
    assert lost_at[0] < granted_at
