"""A server that may have forgotten a lock grants none until every earlier lease must have ended."""

import asyncio
import contextlib
import time
from functools import partial

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockUnavailable
from tests.backends.conftest import SHORT
from tests.support.replicas import Replicated
from tests.support.service import poll


def store(server, kind=RedisBackend, **options):
    return kind(server.url, **{**SHORT, "quarantine": True, **options})


@pytest.fixture
def armed(redis_server):
    """A Redis in service."""
    backend = store(redis_server)
    assert list(backend.arm().values()) == ["armed"]
    yield redis_server
    backend.close()


def restart(server):
    server.kill()
    server.start()


def flush(server):
    with server.client() as client:
        client.flushall()


def test_a_server_that_nobody_armed(redis_server, client_of):
    """A server without a marker grants nothing for max_ttl, says for how long and what to do, and serves then."""
    client = client_of(store(redis_server))
    with pytest.raises(LockUnavailable, match=r"in quarantine for another 4\.0 s.*redlock_check --arm.*arm\(\)"):
        client.lock("stock").acquire()
    poll(lambda: granted(client), timeout=20, what="the end of the quarantine")


def granted(client, name="stock"):
    lock = client.lock(name)
    try:
        taken = lock.acquire(blocking=False)
    except LockUnavailable:
        return False
    if taken:
        lock.release()
    return taken


@pytest.mark.parametrize("forget", [restart, flush], ids=["restart", "flushall"])
def test_no_second_holder(armed, client_of, forget):
    """What the server has forgotten is not granted to another while the first holder's lease lasts."""
    holder, other = client_of(store(armed)), client_of(store(armed))
    lock = holder.lock("stock", auto_renew=False)
    assert lock.acquire()
    forget(armed)
    with pytest.raises(LockUnavailable, match="in quarantine"):
        other.lock("stock").acquire(blocking=False)
    assert not lock.lost
    poll(lambda: granted(other), timeout=20, what="the end of the quarantine")
    assert lock.lost


@pytest.mark.parametrize("saved", [False, True], ids=["empty", "old data"])
def test_without_quarantine_there_are_two(own_redis, client_of, saved):
    """With it switched off, which is one Redis' default, a restart gives the lock away twice."""
    server = own_redis()
    if saved:
        with server.client() as direct:
            direct.save()  # before the lock is taken
    holder, other = client_of(RedisBackend(server.url, ttl=20)), client_of(RedisBackend(server.url, ttl=20))
    lock = holder.lock("stock", auto_renew=False)
    assert lock.acquire()
    restart(server)
    assert other.lock("stock").acquire(blocking=False)
    assert not lock.lost


def test_a_holder_keeps_what_the_server_forgot(armed, client_of):
    """The holder's next renewal puts the lock back, also when nobody else has asked the server since."""
    client = client_of(store(armed))
    lock = client.lock("stock", auto_renew=False)
    assert lock.acquire()
    restart(armed)
    assert lock.extend() > 0
    assert lock.owned()
    lock.release()


def test_a_holder_is_renewed_through_a_restart(armed):
    """Renewal in the background does the same: the holder is not disturbed."""
    backend = store(armed)
    with backend.lock("stock") as lock:
        restart(armed)
        began = time.monotonic()
        poll(lambda: time.monotonic() - began > SHORT["ttl"] * 1.5, timeout=20, what="one and a half leases")
        assert not lock.lost
        assert lock.owned()
    backend.close()


def test_nobody_takes_what_was_put_back(armed, client_of):
    """A lock that was put back excludes others when the quarantine is over."""
    holder, other = client_of(store(armed)), client_of(store(armed))
    lock = holder.lock("stock")
    assert lock.acquire()
    restart(armed)
    poll(lock.owned, timeout=20, what="the lock back in its place")
    poll(lambda: granted(other, "else"), timeout=20, what="the end of the quarantine")
    assert not other.lock("stock").acquire(blocking=False)
    assert not lock.lost
    lock.release()


def test_nobody_puts_back_after_the_quarantine(armed, client_of):
    """Where no quarantine lasts, a lock that the server doesn't have is lost."""
    client = client_of(store(armed))
    lock = client.lock("stock", auto_renew=False)
    assert lock.acquire()
    with armed.client() as direct:
        direct.delete("redlock:{stock}")
    with pytest.raises(Exception, match="lost"):
        lock.extend()


@pytest.mark.parametrize("persistence", [("--appendonly", "yes", "--appendfsync", "always"), ("--save", "3600 1")])
def test_old_data(own_redis, client_of, persistence):
    """A server that comes back with data, all or old, is in quarantine as well: it can't know which."""
    server = own_redis(*persistence)
    store(server).arm()
    client = client_of(store(server))
    assert granted(client)
    with server.client() as direct:
        direct.save()
    restart(server)
    assert server.client().exists("redlock:marker")
    with pytest.raises(LockUnavailable, match="in quarantine"):
        client.lock("stock").acquire()


def test_the_marker_outlives_script_flush(armed, client_of):
    """SCRIPT FLUSH costs a repeated request, no quarantine."""
    client = client_of(store(armed))
    assert granted(client)
    with armed.client() as direct:
        direct.script_flush()
    assert granted(client)


def test_arm_says_what_it_did(redis_server):
    """A server without a marker is armed, and serves at once."""
    backend = store(redis_server)
    assert backend.arm() == {redis_server.url.removeprefix("redis://").removesuffix("/0"): "armed"}
    assert backend.lock("stock").acquire(blocking=False)


def test_arm_refuses_a_server_with_anothers_marker(own_redis):
    """Where the marker of another server stands (old data came back) nothing is armed, and the quarantine goes on."""
    server = own_redis("--save", "3600 1")
    backend = store(server)
    backend.arm()
    with server.client() as direct:
        direct.save()
    restart(server)
    (told,) = backend.arm().values()
    assert told.startswith("refused: its marker names another server")
    with pytest.raises(LockUnavailable, match="in quarantine"):
        backend.lock("stock").acquire()


def test_arm_after_somebody_asked(own_redis):
    """That somebody asked in the meantime, and so began the quarantine, makes no difference to that."""
    server = own_redis("--save", "3600 1")
    backend = store(server)
    backend.arm()
    with server.client() as direct:
        direct.save()
    restart(server)
    with pytest.raises(LockUnavailable):
        backend.lock("stock").acquire()
    (told,) = backend.arm().values()
    assert told.startswith("refused")


async def test_arm_in_asyncio(redis_server):
    """The same for asyncio."""
    backend = store(redis_server)
    assert list((await backend.aarm()).values()) == ["armed"]
    assert await backend.lock("stock").aacquire()
    await backend.aclose()


def test_arm_without_servers(own_redis):
    """When no node can be asked that is an error, not a silence."""
    server = own_redis()
    backend = store(server)
    server.kill()
    with pytest.raises(LockUnavailable, match="no node can be asked"):
        backend.arm()


def test_another_max_ttl_is_told(armed, client_of):
    """The first client's max_ttl holds for all: one with another is refused and told both."""
    with pytest.raises(LockUnavailable, match=r"its clients use max_ttl=4 s: all clients must use the same value"):
        client_of(store(armed, max_ttl=5)).lock("stock").acquire()


def test_a_failover_there_and_back(start, client_of):
    """A primary that has followed another for a while, and lost what that had not, grants nothing at first."""
    group = start(Replicated(1))
    first, replica = group.servers
    client = client_of(store(first, ttl=30, max_ttl=30))
    client.backend.arm()
    group.cut_off(replica)
    assert client.lock("stock").acquire(timeout=0)
    group.promote(replica)
    group.follow(first)
    group.promote(first)
    with pytest.raises(LockUnavailable, match="in quarantine for another"):
        client_of(store(first, ttl=30, max_ttl=30)).lock("stock").acquire(timeout=0)


def test_another_max_ttl_is_told_with_replicas(start):
    """The same with replicas, also at the moment when another replica comes."""
    group = start(Replicated(1))
    options = {**SHORT, "lag": 1}
    first = ReplicaBackend(group.primary.url, **options)
    first.arm()
    with pytest.raises(LockUnavailable, match=r"max_ttl=4 s: all clients must use the same value"):
        ReplicaBackend(group.primary.url, **{**options, "max_ttl": 5}).lock("stock").acquire()
    assert first.lock("stock").acquire()


def test_refused_on_a_cluster():
    """A Redis Cluster would need a marker in every slot: refused, and said why."""
    with pytest.raises(ValueError, match="every slot"):
        RedisBackend("redis+cluster://127.0.0.1:7000", quarantine=True)


def test_prepare_starts_the_clock(redis_server):
    """Getting ready begins the quarantine, so that it is over sooner on an idle system."""
    backend = store(redis_server)
    assert not backend.prepare()
    (row,) = backend.health()
    assert 0 < row["quarantine"] <= SHORT["max_ttl"]


def test_health_shows_it(redis_server, client_of):
    """A row says whether the server is in service and how much longer its quarantine lasts."""
    backend = store(redis_server)
    client = client_of(backend)
    (row,) = client.health()
    assert (row["armed"], row["ok"]) == (False, True)
    assert 0 < row["quarantine"] <= SHORT["max_ttl"]
    assert "makes no new grants for another" in row["warnings"][0]
    backend.arm()
    (row,) = client.health()
    assert (row["armed"], row["quarantine"], row["warnings"]) == (True, 0, [])


def test_who_looks_starts_the_clock(redis_server, client_of):
    """Monitoring begins the quarantine of a server that nobody asks for locks, so that it is over in time."""
    client = client_of(store(redis_server))
    poll(lambda: client.health()[0]["armed"], timeout=20, what="the end of the quarantine")


ONE_REDIS, PRIMARY = store, partial(store, kind=ReplicaBackend, min_replicas=0)


@pytest.mark.parametrize("made", [ONE_REDIS, PRIMARY], ids=["one Redis", "a primary"])
@pytest.mark.parametrize("touch", ["renewal", "extend", "aextend", "health", "prepare"])
def test_a_request_that_starts_the_clock(own_redis, start, made, touch):
    """A server that kept a lock over a restart may have lost others: not only an acquire begins its quarantine."""
    server = own_redis("--appendonly", "yes", "--appendfsync", "always")
    backend = start(contextlib.closing(made(server)))
    backend.arm()
    lock = backend.lock("stock", auto_renew=touch == "renewal")
    assert lock.acquire()
    restart(server)
    if touch == "aextend":
        asyncio.run(lock.aextend())
    elif touch != "renewal":
        getattr(lock if touch == "extend" else backend, touch)()
    with server.client() as client:
        poll(lambda: b" " in client.get("redlock:marker"), timeout=SHORT["ttl"], what="a quarantine")
    assert not lock.lost


def test_a_primary_in_service_is_ready(start):
    """How many replicas must confirm is learnt with the first lock: a server that says so is in service."""
    group = start(Replicated(2))
    backend = start(contextlib.closing(ReplicaBackend(group.primary.url, **SHORT, min_replicas="all")))
    backend.arm()
    assert backend.prepare()


def test_health_of_a_server_that_is_back(armed, client_of):
    """That a connection was closed by a restart is no reason to call the server down."""
    client = client_of(store(armed))
    assert client.health()[0]["armed"]
    restart(armed)
    (row,) = client.health()
    assert (row["ok"], row["armed"]) == (True, False)


def test_health_shows_another_max_ttl(armed, client_of):
    """A server whose clients have agreed on another max_ttl is a problem."""
    (row,) = client_of(store(armed, max_ttl=5)).health()
    assert not row["ok"]
    assert "max_ttl" in row["problems"][0]


def test_health_where_there_is_none(redis_server):
    """Without quarantine there is nothing to say of it."""
    (row,) = RedisBackend(redis_server.url).health()
    assert "quarantine" not in row
    assert "armed" not in row
