"""A server that may have forgotten a lock grants none until every earlier lease must have ended."""

import asyncio
import contextlib
from functools import partial

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockUnavailable
from tests.support.locks import SHORT, crash, granted
from tests.support.replicas import Replicated
from tests.support.service import poll


def store(server, kind=RedisBackend, **options):
    return kind(server.url, **{**SHORT, "quarantine": True, **options})


@pytest.fixture
def armed(redis_server):
    backend = store(redis_server)
    assert list(backend.arm().values()) == ["armed"]
    yield redis_server
    backend.close()


def flush(server):
    with server.client() as client:
        client.flushall()


def test_a_server_that_nobody_armed(redis_server, client_of):
    """A server without a marker is in quarantine for max_ttl; the error says how long, and what to do."""
    client = client_of(store(redis_server))
    with pytest.raises(LockUnavailable, match=r"in quarantine for another [34]\.\d s.*redlock_check --arm.*arm\(\)"):
        client.lock("stock").acquire()
    poll(lambda: granted(client), timeout=20, what="the end of the quarantine")


@pytest.mark.parametrize("forget", [crash, flush], ids=["restart", "flushall"])
def test_no_second_holder(armed, client_of, forget):
    """A lock that the server has lost is not granted to another client while the holder's lease lasts."""
    holder, other = client_of(store(armed)), client_of(store(armed))
    lock = holder.lock("stock", auto_renew=False)
    assert lock.acquire()
    forget(armed)
    with pytest.raises(LockUnavailable, match="in quarantine"):
        other.lock("stock").acquire(blocking=False)
    assert not lock.lost
    poll(lambda: granted(other), timeout=20, what="the end of the quarantine")
    assert lock.lost


def test_a_restored_lock_excludes_others(armed, client_of):
    """A renewal restores the holder's lock after a restart, and no other client gets it after the quarantine."""
    holder, other = client_of(store(armed)), client_of(store(armed))
    lock = holder.lock("stock")
    assert lock.acquire()
    crash(armed)
    poll(lock.owned, timeout=20, what="the lock back in its place")
    poll(lambda: granted(other, "else"), timeout=20, what="the end of the quarantine")
    assert not other.lock("stock").acquire(blocking=False)
    assert not lock.lost
    lock.release()


@pytest.mark.parametrize("persistence", [("--appendonly", "yes", "--appendfsync", "always"), ("--save", "3600 1")])
def test_a_restart_with_data_is_in_quarantine(own_redis, client_of, persistence):
    """A server that restarts with all or old data is in quarantine, because it can't know which."""
    server = own_redis(*persistence)
    store(server).arm()
    client = client_of(store(server))
    assert granted(client)
    with server.client() as direct:
        direct.save()
    crash(server)
    assert server.client().exists("redlock:marker")
    with pytest.raises(LockUnavailable, match="in quarantine"):
        client.lock("stock").acquire()


@pytest.mark.parametrize("arm", [lambda backend: backend.arm(), lambda backend: asyncio.run(backend.aarm())])
def test_arm(redis_server, arm):
    """arm() and aarm() report that a server without a marker is armed, and it grants locks at once."""
    backend = store(redis_server)
    assert arm(backend) == {redis_server.url.removeprefix("redis://").removesuffix("/0"): "armed"}
    assert backend.lock("stock").acquire(blocking=False)


def test_arm_refuses_a_server_with_anothers_marker(own_redis):
    server = own_redis("--save", "3600 1")
    backend = store(server)
    backend.arm()
    with server.client() as direct:
        direct.save()
    crash(server)
    (told,) = backend.arm().values()
    assert told.startswith("refused: its marker names another server")
    with pytest.raises(LockUnavailable, match="in quarantine"):
        backend.lock("stock").acquire()


def test_arm_without_servers(own_redis):
    server = own_redis()
    backend = store(server)
    server.kill()
    with pytest.raises(LockUnavailable, match="no node is available"):
        backend.arm()


def test_another_max_ttl_is_refused_with_replicas(start):
    """With replicas, a client whose max_ttl differs is refused, even when a replica has just been added."""
    group = start(Replicated(1))
    options = {**SHORT, "lag": 10}
    first = ReplicaBackend(group.primary.url, **options)
    first.arm()
    with pytest.raises(LockUnavailable, match=r"max_ttl=4 s: all clients must use the same value"):
        ReplicaBackend(group.primary.url, **{**options, "max_ttl": 5}).lock("stock").acquire()
    assert first.lock("stock").acquire()


def test_health_shows_the_quarantine(redis_server, client_of):
    backend = store(redis_server)
    client = client_of(backend)
    (row,) = client.health()
    assert (row["armed"], row["ok"]) == (False, True)
    assert 0 < row["quarantine"] <= SHORT["max_ttl"]
    assert "wait, nothing to do: grants no new locks for another" in row["warnings"][0]
    backend.arm()
    (row,) = client.health()
    assert (row["armed"], row["quarantine"], row["warnings"]) == (True, 0, [])


LASTING = {"ttl": 9, "max_ttl": 9}
KINDS = {
    "one Redis": partial(store, **LASTING),
    "a primary": partial(store, kind=ReplicaBackend, min_replicas=0, **LASTING),
    "a quorum": lambda server: RedlockBackend([server.url], **{**SHORT, **LASTING}),
}


@pytest.mark.parametrize("made", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("touch", ["renewal", "extend", "aextend", "health", "prepare"])
def test_any_request_starts_the_quarantine(own_redis, start, made, touch):
    server = own_redis("--appendonly", "yes", "--appendfsync", "always")
    backend = start(contextlib.closing(made(server)))
    backend.arm()
    lock = backend.lock("stock", auto_renew=touch == "renewal")
    assert lock.acquire()
    crash(server)
    if touch == "aextend":
        asyncio.run(lock.aextend())
    elif touch != "renewal":
        getattr(lock if touch == "extend" else backend, touch)()
    with server.client() as client:
        poll(lambda: b" " in client.get("redlock:marker"), timeout=LASTING["ttl"], what="a quarantine")
    assert not lock.lost


def test_health_shows_another_max_ttl(armed, client_of):
    (row,) = client_of(store(armed, max_ttl=5)).health()
    assert not row["ok"]
    assert "max_ttl" in row["problems"][0]
