"""Servers whose clocks jump while locks are held: leases end early or late, and fencing tokens still grow."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockLost, LockUnavailable
from django_redlock.testing.conformance.harness.clients import AsyncClient
from tests.backends.replica.stores import has
from tests.support.clocked import ClockedRedis
from tests.support.group import Group
from tests.support.locks import SHORT, acquired, crash
from tests.support.proxy import Proxy
from tests.support.replicas import Replicated
from tests.support.service import poll

KEY = "redlock:{stock}"
LONG = {"ttl": 20, "max_ttl": 20, "node_timeout": 5, "auto_renew": False}
HOUR, DAY = 3600, 86400


@pytest.fixture
def server(start):
    """A Redis that keeps its data over a restart."""
    return start(Group([ClockedRedis("--appendonly", "yes", "--appendfsync", "always")])).servers[0]


@pytest.fixture
def three(start):
    """Three nodes in service."""
    servers = start(Group(ClockedRedis() for _ in range(3))).servers
    backend = quorum(servers)
    assert list(backend.arm().values()) == ["armed"] * 3
    backend.close()
    return servers


def quorum(servers):
    return RedlockBackend([server.url for server in servers], **LONG)


def left(server):
    """Return the seconds that the server shows as remaining for the lock."""
    with server.client() as client:
        return client.pttl(KEY) / 1000


KINDS = {"redis": RedisBackend, "quarantine": partial(RedisBackend, quarantine=True), "replica": ReplicaBackend}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_set_forward(start, client_of, kind):
    """After a jump forward another client gets the lock early; the first holder gets LockLost and disturbs nobody."""
    server = start(Replicated(1, ClockedRedis)).primary
    clients = [client_of(kind(server.url, **LONG)) for _ in range(2)]
    if clients[0].backend.quarantine:
        assert set(clients[0].backend.arm().values()) == {"armed"}
    holder, other = (client.lock("stock") for client in clients)
    assert holder.acquire()
    server.set_clock(60)
    poll(lambda: acquired(other), timeout=20, what="the lock, when replicas have been heard of by the new clock")
    assert not holder.lost
    with pytest.raises(LockLost):
        holder.extend()
    with pytest.raises(LockLost):
        holder.release()
    assert other.owned()


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "over a restart"])
def test_set_back(server, client_of, restarted):
    """After a jump back the holder's lease ends by its own clock, an extension corrects the key, a release frees it."""
    server.set_clock(HOUR)
    holder, other = (client_of(RedisBackend(server.url, **LONG)).lock("stock") for _ in range(2))
    assert holder.acquire()
    server.set_clock(0)
    if restarted:
        crash(server)
    assert left(server) > HOUR
    assert holder.remaining < LONG["ttl"]
    assert not other.acquire(blocking=False)
    assert holder.extend() < LONG["ttl"]
    assert left(server) <= LONG["ttl"]
    holder.release()
    assert other.acquire(blocking=False)


def test_set_back_while_one_waits(server, client_of):
    """A waiter whose server's clock was set back while it blocks gives up at its own deadline."""
    clients = [client_of(RedisBackend(server.url, **SHORT)) for _ in range(2)]
    holder, other = (client.lock("stock") for client in clients)
    assert holder.acquire()
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(other.acquire, True, 5)
        poll(lambda: clients[0].describe("stock").waiters == 1, timeout=20, what="a waiter")
        server.set_clock(-HOUR)
        with contextlib.suppress(LockUnavailable):
            assert not asked.result(60)
    assert time.monotonic() - began < 20
    holder.release()
    assert other.acquire(blocking=False)


def test_waiter_whose_server_changes(server, start):
    """A waiter that one server has refused, and another server with another clock grants the lock, is not misled."""
    other = start(Group([ClockedRedis()])).servers[0]
    other.set_clock(HOUR)
    with contextlib.closing(RedisBackend(other.url, **LONG)) as backend, backend.lock("stock"):
        assert not backend.lock("stock").acquire(blocking=False)  # the server knows the script now
    proxy = start(Proxy(server.url))
    waiting, holding = RedisBackend(proxy.url, **LONG), RedisBackend(server.url, **LONG)
    client = AsyncClient(waiting)
    lock = client.lock("stock")
    assert not lock.locked()  # the connection that the tasks share
    assert holding.lock("stock", ttl=2).acquire()
    proxy.target = other.port  # of new connections, such as the one on which the task waits
    with ThreadPoolExecutor(1) as pool, other.client() as admin:
        asked = pool.submit(lock.acquire, True, 20)
        poll(lambda: any(row["cmd"] == "blpop" for row in admin.client_list()), timeout=20, what="a task that waits")
        proxy.hold("replies")
        poll(lambda: 0 < left(other) < LONG["ttl"] - 2, timeout=20, what="a grant that is not read")
        proxy.restore()
        assert asked.result(60)
        assert lock.remaining <= left(other)
    client.close()
    holding.close()


@pytest.mark.parametrize("ahead", [1, 2])
def test_set_forward_on_some_nodes(three, client_of, ahead):
    """A jump forward on a minority of nodes is repaired by the next extension; on a majority the lock is lost."""
    clients = [client_of(quorum(three)) for _ in range(2)]
    assert all(row["ok"] for client in clients for row in client.backend.health())  # and so connected
    holder, other = (client.lock("stock") for client in clients)
    assert holder.acquire()
    poll(lambda: all(left(server) > 0 for server in three), timeout=10, what="votes of all nodes")
    forward = [three[node] for node in holder.hold.lease.nodes[:ahead]]
    for server in forward:
        server.set_clock(60)
    assert other.acquire(blocking=False) == (ahead == 2)
    if ahead == 2:
        with pytest.raises(LockLost):
            holder.extend()
        assert other.owned()
    else:
        assert holder.extend() > 0
        assert left(forward[0]) > 0
        holder.release()


def test_fencing_tokens_grow(server):
    """Fencing tokens grow whatever the clock does, also over restarts."""
    backend, tokens = RedisBackend(server.url, **LONG), []
    for ahead, restarted in ((HOUR, False), (0, False), (-HOUR, True), (2 * DAY, False), (0, True), (-HOUR, False)):
        server.set_clock(ahead)
        if restarted:
            crash(server)
        tokens.append(token(backend))
    assert tokens == sorted(set(tokens))
    backend.close()


def test_fencing_tokens_of_a_quorum_grow(three):
    """Fencing tokens grow even if the node that was ahead restarts without data and with a correct clock."""
    backend = quorum(three)
    ahead, behind, late = three
    late.pause()
    ahead.set_clock(HOUR)
    tokens = [token(backend)]
    assert tokens[0] > (time.time() + HOUR / 2) * 1e6
    late.resume()
    ahead.set_clock(0)
    crash(ahead)
    for other_clock in (0, -HOUR):
        behind.set_clock(other_clock)
        poll(lambda: granted(backend, tokens), timeout=20, what="the node that hung, in service")
    assert tokens == sorted(set(tokens))
    backend.close()


def granted(backend, tokens):
    with contextlib.suppress(LockUnavailable):
        tokens.append(token(backend))
        return True
    return False


def token(backend):
    with backend.lock("stock", fencing=True, blocking_timeout=10) as lock:
        return lock.fencing_token


@pytest.fixture
def pair(server, client_of):
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
    """It may take every lease as expired, and still grants nothing, and the holder keeps its lock."""
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
