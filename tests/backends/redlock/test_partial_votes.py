"""The answers of a quorum about a lock that only some nodes have."""

import contextlib

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.core.keys import stripe_name
from django_redlock.errors import LockLost, LockUnavailable
from django_redlock.testing.conformance.harness.actors import Actors, InTask, InThread
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.shared_handles import MAKE
from tests.support.group import FiveNodes
from tests.support.locks import held_on, new_lock
from tests.support.service import poll, revive


@pytest.fixture
def servers(running):
    """Five nodes that are up and empty."""
    servers = running(FiveNodes).servers
    for server in servers:
        with server.client() as client:
            client.flushall()
    yield servers
    for server in servers:
        revive(server)


@pytest.fixture(params=[InThread, InTask], ids=["sync", "async"])
def actors(request, servers):
    urls = [server.url for server in servers]
    made = Actors(request.param, RedlockBackend(urls, node_timeout=3, quarantine=False))
    yield made
    made.close()


@pytest.fixture(params=sorted({*MAKE, "read"} - {"fair"}))
def held(request, actors):
    """`held()`: the result of the holder's check, and whether others see the lock as held."""
    holder, lock = actors(), new_lock(request.param, actors.backend, "x", auto_renew=False)
    name = stripe_name("x", 0) if request.param == "striped" else "x"

    def granted_by_all():
        # A node that is too slow for an acquire, or not connected yet, votes with a renewal only: acquire again.
        with contextlib.suppress(LockUnavailable):
            assert holder.do(lock, "acquire", True, TEST_TIMEOUT)
            with contextlib.suppress(TimeoutError):
                poll(lambda: len(actors.backend.describe(name).nodes) == 5, timeout=2, what="five votes")
                return True
            holder.do(lock, "release")
        return False

    poll(granted_by_all, timeout=60, what="five votes")
    return lambda: (holder.do(lock, "owned"), holder.do(lock, "locked"), actors.backend.describe(name) is not None)


def forget(servers):
    for server in servers:
        with server.client() as client:
            client.flushall()


def test_held_by_a_majority(servers, held):
    """A lock that three of five nodes have is held."""
    forget(servers[:2])
    assert held() == (True, True, True)


def test_held_by_a_minority(servers, held):
    """A lock that two of five nodes have is not held, but inspection shows it."""
    forget(servers[:3])
    assert held() == (False, False, True)


def test_may_be_held_by_a_node_that_is_down(servers, held):
    forget(servers[:2])
    servers[2].kill()
    assert held() == (True, True, True)


@pytest.mark.parametrize("held", ["mutex"], indirect=True)
def test_may_be_held_by_a_silent_node(servers, held):
    forget(servers[:2])
    servers[2].pause()
    assert held() == (True, True, True)


def test_release_after_a_majority_lost_its_data(servers, client_of):
    """It raises LockLost, and until every lease has ended the lock is granted to nobody else. A renewal restores it."""
    place = [server.url for server in servers]
    holder, other = (
        client_of(RedlockBackend(place, ttl=20, max_ttl=20, node_timeout=5, key_prefix="q")) for _ in range(2)
    )
    assert set(holder.backend.arm().values()) == {"armed"}
    kept, released = (holder.lock(name, auto_renew=False) for name in ("kept", "released"))
    for lock in (kept, released):
        assert lock.acquire()
    forget(servers[:3])
    assert kept.extend() > 0
    assert held_on(servers, "q:{kept}") >= 3
    kept.release()
    with pytest.raises(LockLost):
        released.release()
    for name in ("kept", "released"):
        with pytest.raises(LockUnavailable, match="in quarantine for another"):
            other.lock(name).acquire(blocking=False)


def test_nodes_that_were_down_at_the_acquire(servers, client_of):
    """Nodes that were down at the acquire get their votes with an extension, so that others may fail afterwards."""
    place = [server.url for server in servers]
    lock = client_of(RedlockBackend(place, ttl=60, node_timeout=10, quarantine=False)).lock("x", auto_renew=False)
    for server in servers[:2]:
        server.kill()
    try:
        assert lock.acquire()
    finally:
        for server in servers[:2]:
            server.start()

    def voted():
        lock.extend()
        return held_on(servers[:2], "redlock:{x}") == 2

    poll(voted, timeout=50, what="the votes of the two nodes")
    forget(servers[2:4])
    assert lock.extend() > 0
    lock.release()
    poll(lambda: not held_on(servers, "redlock:{x}"), timeout=50, what="nodes on which nothing is left")
