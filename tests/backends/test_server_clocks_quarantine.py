"""The quarantine of servers whose clocks jump."""

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockUnavailable
from tests.backends.replica.stores import has
from tests.support.clocked import ClockedRedis
from tests.support.group import Group
from tests.support.proxy import Proxy
from tests.support.replicas import Replicated

KEY = "redlock:{stock}"
LONG = {"ttl": 20, "max_ttl": 20, "node_timeout": 5, "auto_renew": False}
HOUR = 3600


@pytest.fixture
def server(start):
    """An armed Redis that keeps its data over a restart."""
    return start(Group([ClockedRedis("--appendonly", "yes", "--appendfsync", "always")])).servers[0]


@pytest.fixture
def pair(server, client_of):
    """The handles of two clients."""
    return [client_of(RedisBackend(server.url, quarantine=True, **LONG)).lock("stock") for _ in range(2)]


def arm(backend):
    assert set(backend.arm().values()) == {"armed"}
    backend.close()


def refused(lock, seconds):
    """Return the seconds for which the refusal says that the quarantine lasts."""
    with pytest.raises(LockUnavailable, match=rf"in quarantine for another {seconds}\.\d s"):
        lock.acquire(blocking=False)


def test_set_during_a_quarantine(server, pair):
    """A quarantine lasts longer after a jump back, and ends early after a jump forward."""
    arm(RedisBackend(server.url, quarantine=True, **LONG))
    holder, other = pair
    assert holder.acquire()
    with server.client() as client:
        client.flushall()
    refused(other, "(19|20)")
    server.set_clock(-60)
    refused(other, r"(7\d|80)")
    assert holder.extend() > 0
    server.set_clock(60)
    assert other.acquire(blocking=False)
    assert not holder.lost
    other.release()
    server.set_clock(0)
    assert other.acquire(blocking=False)


def test_set_back_over_a_restart(server, pair):
    """A server that restarts with its data and an earlier clock is in quarantine for the usual time."""
    server.set_clock(HOUR)
    arm(RedisBackend(server.url, quarantine=True, **LONG))
    holder, other = pair
    assert holder.acquire()
    server.kill()
    server.set_clock(0)
    server.start()
    refused(other, "(19|20)")
    assert holder.extend() > 0
    holder.release()


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_replica_with_another_clock_is_promoted(start, client_of, ahead):
    """A promoted replica whose clock is ahead takes every lease as expired; it still grants nothing, and the holder
    keeps its lock.
    """
    group = start(Replicated(1, ClockedRedis))
    (replica,) = group.replicas
    replica.set_clock(ahead)
    front = start(Proxy(group.primary.url))
    arm(ReplicaBackend(front.url, lag=6, **LONG))
    holder, other = (client_of(ReplicaBackend(front.url, lag=6, **LONG)).lock("stock") for _ in range(2))
    assert holder.acquire()
    former = group.promote(replica)
    front.retarget(replica.url)
    group.follow(former)
    assert has(replica) == (ahead < 0)
    refused(other, r"2\d")
    assert holder.extend() > 0
    assert has(replica)
    refused(other, r"(1\d|2\d)")
    holder.release()
    assert not has(replica)
