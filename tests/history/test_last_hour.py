"""The last hour of locks, on real stores."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from django_redlock import locks
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from django_redlock.history.event_queue import EventRecord, event_queue
from django_redlock.history.minute_stats import MAX_EVENTS, MINUTES
from django_redlock.history.recorder import recorder
from django_redlock.history.store import add, alast_hour, last_hour, lost_names
from testproject.redis_server import RedisServer
from tests.support.group import Group

BACKENDS = "django_redlock.backends"
REDIS, REDLOCK = f"{BACKENDS}.redis.RedisBackend", f"{BACKENDS}.redlock.RedlockBackend"

PATIENT = {"node_timeout": 5}  # the machine may be busy


@pytest.fixture(params=["one", "quorum", "replica", "memory"])
def backend(request, settings, start, redis_url, unique):
    """Each kind of store that keeps a history."""
    if request.param == "quorum":
        nodes = start(Group(RedisServer() for _ in range(3))).servers
        entry = {
            "BACKEND": REDLOCK,
            "LOCATION": [node.url for node in nodes],
            "OPTIONS": {**PATIENT, "quarantine": False},
        }
    elif request.param == "replica":
        options = {**PATIENT, "wait_timeout": 2, "quarantine": False, "min_replicas": 0}
        entry = {"BACKEND": f"{BACKENDS}.replica.ReplicaBackend", "LOCATION": redis_url, "OPTIONS": options}
    elif request.param == "memory":
        entry = {"BACKEND": f"{BACKENDS}.locmem.LocMemBackend", "LOCATION": unique}
    else:
        entry = {"BACKEND": REDIS, "LOCATION": redis_url, "OPTIONS": PATIENT}
    settings.REDLOCK = {"default": entry}
    yield locks["default"]
    locks.reset()


def hour(backend, name=""):
    """Return the sums of the last hour."""
    event_queue.flush()
    began = time.time()
    minutes = last_hour(backend, name)
    assert len(minutes) == MINUTES
    assert began - 60 < minutes[-1].start <= time.time()
    assert [later.start - earlier.start for earlier, later in pairwise(minutes)] == [60] * 59
    return {
        "acquired": sum(each.acquired for each in minutes),
        "refused": sum(each.refused for each in minutes),
        "held": sum(sum(each.held.values()) for each in minutes),
        "forced": sum(each.forced for each in minutes),
        "events": [event.kind for each in minutes for event in each.events],
        "complete": all(each.complete for each in minutes),
    }


def test_counts(backend):
    """Events are counted for the name and for the whole store."""
    with backend.lock("stock"):
        backend.lock("stock").acquire(blocking=False)
    with backend.lock("invoice"):
        pass
    kinds = ["acquired", "refused", "released"]
    stock = {"acquired": 1, "refused": 1, "held": 1, "forced": 0, "events": kinds, "complete": True}
    assert hour(backend, "stock") == stock
    assert hour(backend) == stock | {"acquired": 2, "held": 2, "events": []}
    assert hour(backend, "stock:1") == dict.fromkeys(stock, 0) | {"events": [], "complete": True}


def test_forced(backend):
    """A forced release is an event with the user."""
    lock = backend.lock("stock", on_lost="warn")
    lock.acquire()
    assert backend.force_release("stock", by="eve")
    assert not backend.force_release("stock", by="eve")
    event_queue.flush()
    [forced] = [event for each in last_hour(backend, "stock") for event in each.events if event.kind == "forced"]
    assert forced.holder.endswith(" eve")


def test_lost_names(backend):
    """lost_names() has names with losses, without those that follow a forced release."""
    minute = int(time.time() // 60)
    backend.lock("stock").locked()  # a location in memory begins with its first use
    add(backend, minute - 1, {"": "a=3 f=1 l=2", "stock": "l=1 a=3", "sale": "f=1", "calm": "a=9 w7=1"})
    add(backend, minute, {"": "l=3", "stock": 'l=2\n[1,"lost",0," l=9",""]', "sale": "l=1"})
    assert lost_names(backend) == {"stock": 3}
    assert sum(each.lost for each in last_hour(backend)) == 4


async def test_asyncio(backend):
    """Coroutines are counted as threads are, and can read the history."""
    async with backend.lock("stock"):
        pass
    event_queue.flush()
    assert sum(each.acquired for each in await alast_hour(backend, "stock")) == 1
    await backend.aclose()


def test_names_beyond_the_limit(backend):
    """Names beyond the limit have no minutes of their own, and the minutes say so."""
    backend.history, now = 2, time.time()  # all in one minute
    backend.lock("stock").locked()  # a location in memory begins with its first use
    for number in range(5):
        event_queue.record(EventRecord(now, "acquired", f"stock:{number}", backend=backend))
        event_queue.flush()
    assert [hour(backend, f"stock:{number}")["acquired"] for number in range(5)] == [1, 1, 0, 0, 0]
    assert hour(backend)["acquired"] == 5
    assert not hour(backend, "stock:4")["complete"]


def test_several_processes_add_up(backend):
    """Counts of several processes are added."""
    for _ in range(3):
        with backend.lock("stock"):
            pass
        event_queue.flush()
    assert hour(backend, "stock")["acquired"] == 3
    assert len(hour(backend, "stock")["events"]) <= 2 * MAX_EVENTS


@pytest.mark.parametrize("store", [REDIS, f"{BACKENDS}.locmem.LocMemBackend"])
def test_history_is_off(settings, own_redis, unique, store):
    """With `history=False` nothing is stored."""
    server = own_redis()
    location, options = (server.url, PATIENT) if store == REDIS else (unique, {})
    settings.REDLOCK = {"default": {"BACKEND": store, "LOCATION": location, "OPTIONS": {**options, "history": False}}}
    with locks["default"].lock("stock"):
        pass
    assert hour(locks["default"])["acquired"] == 0
    with server.client() as client:
        assert client.keys() == []


@pytest.mark.parametrize("store", ["dummy.DummyBackend", "zookeeper.ZooKeeperBackend"])
def test_store_without_one(settings, store):
    """A store without a history returns an empty one, and gets no request."""
    settings.REDLOCK = {"default": {"BACKEND": f"{BACKENDS}.{store}", "LOCATION": "127.0.0.1:1"}}
    assert last_hour(locks["default"]) == []


def test_keys_expire(settings, redis_server):
    """Each key of the history has a ttl of little more than an hour."""
    settings.REDLOCK = {"default": {"BACKEND": REDIS, "LOCATION": redis_server.url, "OPTIONS": PATIENT}}
    with locks["default"].lock("stock"):
        pass
    event_queue.flush()
    with redis_server.client() as client:
        ttls = [client.ttl(key) for key in client.keys("redlock:history:*")]
        assert ttls
        assert all(3600 < ttl <= 3720 for ttl in ttls)
        assert locks["default"].held() == []


def test_store_down(settings, own_redis):
    """Events that a store can't store are dropped and counted, locks are not affected, and reading raises the error."""
    server = own_redis()
    settings.REDLOCK = {"default": {"BACKEND": REDIS, "LOCATION": server.url, "OPTIONS": PATIENT}}
    event_queue.flush()  # nothing of a test before is dropped during this one
    before = recorder.dropped
    with event_queue._drain_mutex:  # the thread doesn't write it down before the store is down
        with locks["default"].lock("stock"):
            pass
        server.kill()
    event_queue.flush()
    assert recorder.dropped - before in (2, 4)  # the name's and the whole, twice if the minute has turned
    with pytest.raises(LockUnavailable):
        last_hour(locks["default"])
    server.start()
    assert hour(locks["default"])["acquired"] == 0


def test_node_down(settings, start):
    """On several nodes the first that replies stores the events, and reading adds up all nodes."""
    nodes = start(Group(RedisServer() for _ in range(3))).servers
    backend = RedlockBackend([node.url for node in nodes], **PATIENT, quarantine=False)
    minute = int(time.time() // 60)
    add(backend, minute, {"": "a=1", "stock": "a=1"})
    nodes[0].kill()
    add(backend, minute, {"": "a=2", "stock": "a=2"})
    assert sum(each.acquired for each in last_hour(backend, "stock")) == 2
    nodes[0].start()
    add(backend, minute, {"": "a=4", "stock": "a=4"})
    assert sum(each.acquired for each in last_hour(backend, "stock")) == 6


def test_cluster(cluster):
    """On a Redis Cluster, the minutes are spread over its masters."""
    from django_redlock.backends.redis import RedisBackend

    backend = RedisBackend(cluster.url, **PATIENT)
    last = int(time.time() // 60)
    for minute in range(last - 9, last + 1):
        add(backend, minute, {"": "a=1"})
    assert [each.acquired for each in last_hour(backend) if each.acquired] == [1] * 10
    assert sum(bool(node.client().keys("redlock:history:*")) for node in cluster.nodes) > 1
