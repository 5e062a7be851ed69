"""The last hour of locks, on real stores."""

import time
from itertools import pairwise

import pytest

from django_redlock import locks
from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from django_redlock.history import last_hour
from django_redlock.history.event_queue import EventRecord, event_queue
from django_redlock.history.minutes import MAX_EVENTS, MINUTES, add, write
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.locks import entry_of, redis_entry

PATIENT = {"node_timeout": 5}  # the machine may be busy


@pytest.fixture(params=["one", "quorum", "replica"])
def backend(request, settings, redis_url):
    """Each kind of store that keeps a history."""
    if request.param == "one":
        entry = redis_entry(redis_url)
    elif request.param == "quorum":
        nodes = [node.url for node in request.getfixturevalue("servers")]
        entry = entry_of("redlock.RedlockBackend", nodes, quarantine=False, **PATIENT)
    else:
        options = {"wait_timeout": 2, "quarantine": False, "min_replicas": 0}
        entry = entry_of("replica.ReplicaBackend", redis_url, **options, **PATIENT)
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
    sums = {kind: sum(getattr(each, kind) for each in minutes) for kind in ("acquired", "refused", "lost", "forced")}
    return {**sums, "events": [event.kind for each in minutes for event in each.events]}


def test_counts(backend):
    """Events are counted for the name and for the whole store."""
    with backend.lock("stock"):
        backend.lock("stock").acquire(blocking=False)
    with backend.lock("invoice"):
        pass
    kinds = ["acquired", "refused", "released"]
    stock = {"acquired": 1, "refused": 1, "lost": 0, "forced": 0, "events": kinds}
    assert hour(backend, "stock") == stock
    assert hour(backend) == stock | {"acquired": 2, "events": []}
    assert hour(backend, "stock:1") == dict.fromkeys(stock, 0) | {"events": []}


def test_forced(backend):
    """A forced release is an event of the lock and of the store, with the user."""
    lock = backend.lock("stock", on_lost="warn")
    lock.acquire()
    assert backend.force_release("stock", by="eve")
    assert not backend.force_release("stock", by="eve")
    event_queue.flush()
    for name in ("stock", ""):
        [forced] = [event for each in last_hour(backend, name) for event in each.events if event.kind == "forced"]
        assert forced.holder.endswith(" eve")
        assert forced.name == "stock"


def test_texts_are_bounded(backend):
    """The texts of an event, such as its owner, are cut."""
    event_queue.flush()
    write([EventRecord(time.time(), "refused", "stock", reason="x" * 9000, holder="y" * 9000, backend=backend)])
    [event] = [event for each in last_hour(backend, "stock") for event in each.events]
    assert (event.kind, len(event.reason), len(event.holder)) == ("refused", 160, 160)


def test_names_beyond_the_limit(backend):
    """The first names in a minute are counted to its end; further names count in the totals only."""
    event_queue.flush()
    backend.history, now = 2, time.time()  # all in one minute
    for name in ("a", "b", "c", "b", "d", "a"):
        write([EventRecord(now, "acquired", name, backend=backend)])
    assert [hour(backend, name)["acquired"] for name in "abcd"] == [2, 2, 0, 0]
    assert hour(backend)["acquired"] == 6


def test_any_name(backend):
    with backend.lock(name := 'x"\\\n\t\0€🔒%s'):
        pass
    assert hour(backend, name)["acquired"] == 1


def test_several_processes_add_up(backend):
    """Counts of several processes are added, and the last events of a minute are kept."""
    now = time.time() // 60 * 60
    for number in range(MAX_EVENTS + 2):
        write([EventRecord(now + number, "acquired", "stock", backend=backend)])
    seen = hour(backend, "stock")
    assert (seen["acquired"], len(seen["events"])) == (MAX_EVENTS + 2, MAX_EVENTS)
    [minute] = [each for each in last_hour(backend, "stock") if each.acquired]
    assert [event.at - now for event in minute.events] == [2, 3, 4, 5, 6]


def test_history_is_off(settings, own_redis):
    server = own_redis()
    settings.REDLOCK = {"default": redis_entry(server.url, history=False)}
    with locks["default"].lock("stock"):
        pass
    event_queue.flush()
    assert last_hour(locks["default"]) == []
    with server.client() as client:
        assert client.keys() == []


@pytest.mark.parametrize("option", [-1, "yes", 1.5, None])
def test_wrong_option(option):
    """Any other value of `history` than a number or a bool is an error."""
    with pytest.raises(ValueError, match="history"):
        RedisBackend("redis://127.0.0.1:1", history=option)


@pytest.mark.parametrize("store", ["dummy.DummyBackend", "locmem.LocMemBackend", "zookeeper.ZooKeeperBackend"])
def test_store_without_one(settings, store):
    """A store without a history returns an empty one, and gets no request."""
    settings.REDLOCK = {"default": entry_of(store, "127.0.0.1:1")}
    assert last_hour(locks["default"]) == []


def test_keys_expire(settings, redis_server):
    """Each key of the history has a ttl of little more than an hour."""
    settings.REDLOCK = {"default": redis_entry(redis_server.url)}
    with locks["default"].lock("stock"):
        pass
    event_queue.flush()
    with redis_server.client() as client:
        ttls = [client.ttl(key) for key in client.keys("redlock:history:*")]
        assert ttls
        assert all(3600 < ttl <= 3720 for ttl in ttls)
        assert locks["default"].held() == []


def test_store_down(settings, own_redis):
    """Events that a store can't store are dropped, and locks are not affected; reading raises the error."""
    server = own_redis()
    settings.REDLOCK = {"default": redis_entry(server.url)}
    with event_queue._flushing:  # the thread doesn't write it down before the store is down
        with locks["default"].lock("stock"):
            pass
        server.kill()
    event_queue.flush()
    with pytest.raises(LockUnavailable):
        last_hour(locks["default"])
    server.start()
    assert hour(locks["default"])["acquired"] == 0


def test_node_down(start):
    """On several nodes the first that replies stores the events, and reading adds up all nodes."""
    nodes = start(Group(RedisServer() for _ in range(3))).servers
    backend = RedlockBackend([node.url for node in nodes], **PATIENT, quarantine=False)
    minute = int(time.time() // 60)

    def sum_with(number):
        add(backend, minute, [("stock", "events", ""), ("stock", "acquired", str(number))])
        return hour(backend, "stock")["acquired"]

    assert sum_with(1) == 1
    nodes[0].kill()
    assert sum_with(2) == 2
    nodes[0].start()
    assert sum_with(4) == 6


def test_cluster(cluster):
    """On a Redis Cluster, the minutes are spread over its masters."""
    backend = RedisBackend(cluster.url, **PATIENT)
    last = int(time.time() // 60)
    for minute in range(last - 9, last + 1):
        add(backend, minute, [("", "acquired", "1")])
    assert [each.acquired for each in last_hour(backend) if each.acquired] == [1] * 10
    assert sum(bool(node.client().keys("redlock:history:*")) for node in cluster.nodes) > 1
