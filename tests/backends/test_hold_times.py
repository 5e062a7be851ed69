"""How long a lock of each kind is held, and how often it was renewed, as onlookers are told."""

import json
import time

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.celery.modes import MODES
from django_redlock.celery.records.body import BODY
from django_redlock.celery.records.call import TaskCall
from django_redlock.celery.records.memory_store import MemoryStore
from django_redlock.core.algorithms.merging import merge_views
from django_redlock.core.flow.drivers import drive
from django_redlock.core.keys import keys_for
from django_redlock.core.lock_info import HoldTime, LockInfo, read_lock_info
from django_redlock.core.owner import Owner, describe_owner
from django_redlock.core.values import Claim
from testproject.redis_server import RedisServer
from tests.support.group import Group

KINDS = {
    "mutex": lambda backend, name: backend.lock(name),
    "fair": lambda backend, name: backend.lock(name, fair=backend.fair is not None),
    "rlock": lambda backend, name: backend.rlock(name),
    "semaphore": lambda backend, name: backend.semaphore(name, limit=2),
    "read": lambda backend, name: backend.rwlock(name).read,
    "write": lambda backend, name: backend.rwlock(name).write,
    "multilock": lambda backend, name: backend.multilock([name, f"{name} too"]),
    "striped": lambda backend, name: backend.striped(name, stripes=2),
}


@pytest.fixture(params=["redis", "cluster", "redlock", "locmem"])
def backend(request, unique):
    """A backend that knows all kinds."""
    if request.param == "locmem":
        yield LocMemBackend(unique)
        return
    if request.param == "redis":
        made = RedisBackend(request.getfixturevalue("redis_url"))
    elif request.param == "cluster":
        made = RedisBackend(request.getfixturevalue("cluster").url)
    else:
        servers = request.getfixturevalue("start")(Group(RedisServer() for _ in range(3))).servers
        made = RedlockBackend([server.url for server in servers], quarantine=False)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(backend, kind, unique):
    """Each renewal counts; what the one who held it before did doesn't, nor what others do who hold it too."""
    name = f"{{{unique}}}" if kind == "multilock" else unique
    for renewals, ttl in ((3, 20), (1, 25)):
        lock, start = KINDS[kind](backend, name), time.monotonic()
        with lock:
            other = backend.semaphore(name, limit=2) if kind == "semaphore" else None
            if other:
                other.acquire()
            assert [each.renewals for each in backend.held()[0].hold_times] == [0] * (2 if other else 1)
            for _ in range(renewals):
                lock.extend(ttl)
            rows = backend.held()
            assert len(rows) == (2 if kind == "multilock" else 1)
            for row in rows:
                assert sorted(each.renewals for each in row.hold_times) == ([0, renewals] if other else [renewals])
                known = next(each for each in row.hold_times if each.renewals)
                assert known.ttl == pytest.approx(ttl)
                assert 0 <= known.renewed <= known.held <= time.monotonic() - start + 0.1
            if other:
                other.release()


@pytest.fixture(params=["redis", "locmem"])
def store(request, unique):
    """Where tasks have their records."""
    if request.param == "locmem":
        memory = LocMemBackend(unique)
        yield MemoryStore(memory), memory
        return
    backend = RedisBackend(request.getfixturevalue("redis_url"))
    yield backend, backend
    backend.close()


def test_tasks(store):
    """Of a task that runs, likewise, as long as it is in the record; of one that is queued again nothing is known."""
    store, backend = store
    keys = keys_for(b"redlock", b"settle")
    for run in range(2):
        ticket = TaskCall("settle", keys, "t", f"task {run}", "s", MODES["until_executed"], 2, 600.0, 60.0)
        owner = describe_owner({"task_id": str(run)}, 60.0)
        claim = Claim("settle", keys, b"token-%d" % run, owner, 60.0, payload=ticket)
        lease = drive(store.algorithm.acquire(BODY, claim, 0.0), store.perform)
        for _ in range(run + 1):
            lease = drive(store.algorithm.extend(BODY, lease, 50.0), store.perform)
    assert [(each.renewals, each.ttl) for each in backend.describe("settle").hold_times] == [(1, 50.0), (2, 50.0)]
    drive(store.algorithm.release(BODY, lease.claim), store.perform)
    holders = backend.describe("settle")
    assert [owner.extra["state"] for owner in holders.holders] == ["running", "queued"]
    assert holders.hold_times == (holders.hold_times[0], HoldTime())
    assert holders.hold_time.renewals == 1


def test_a_node_that_knows_less():
    """Of several nodes the one that has known a holding for longest tells."""
    owner = json.dumps({"host": "a", "ttl": 20}).encode()
    share = [b"token " + owner, b"semaphore@30000 x"]
    for kind, value in ((b"string", b"token " + owner), (b"hash", share)):
        replies = [[kind, value, 10_000, 0, b"d", 20_000, told] for told in ([], [b"token", b"7 90000 20000"], [])]
        view = merge_views([read_lock_info("x", reply, str(node)) for node, reply in enumerate(replies)])
        assert view.hold_times == (HoldTime(100.0, 7, 10.0, 20.0),)


def test_unknown():
    """Of a lock without an end, or of another program's, nothing is known, and nothing made up."""
    told = [
        read_lock_info("x", [b"string", value, left, 0, b"d", 0, []]) for value, left in ((b"theirs", 9), (b"t {}", 9))
    ]
    told += [
        read_lock_info("x", [b"string", b't {"ttl":20}', -1, 0, b"d", 0, []]),
        LockInfo("x", "mutex", Owner(), 1.0),
    ]
    assert [held.hold_time for held in told] == [HoldTime()] * 4
