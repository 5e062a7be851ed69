"""How long a lock of each kind is held, and how often it was renewed, as onlookers are told."""

import json
import time

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.celery.memory import MemoryStore
from django_redlock.celery.modes import MODES
from django_redlock.celery.records import Running, Ticket
from django_redlock.core.drivers import drive
from django_redlock.core.flows.merging import merged
from django_redlock.core.held import Held, Tenure, read_held
from django_redlock.core.keys import keys_for
from django_redlock.core.lease import Claim
from django_redlock.core.owner import Owner, describe_owner
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
            assert [each.renewals for each in backend.held()[0].tenures] == [0] * (2 if other else 1)
            for _ in range(renewals):
                lock.extend(ttl)
            rows = backend.held()
            assert len(rows) == (2 if kind == "multilock" else 1)
            for row in rows:
                assert sorted(each.renewals for each in row.tenures) == ([0, renewals] if other else [renewals])
                known = next(each for each in row.tenures if each.renewals)
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
        ticket = Ticket("settle", keys, "t", f"task {run}", "s", MODES["until_executed"], 2, 600.0, 60.0)
        owner, running = describe_owner({"task_id": str(run)}, 60.0), Running.of(ticket)
        claim = Claim("settle", keys, b"token-%d" % run, owner, 60.0, lane=ticket)
        lease = drive(store.rule.acquire(running, claim, 0.0), store.perform)
        for _ in range(run + 1):
            lease = drive(store.rule.extend(running, lease, 50.0), store.perform)
    assert [(each.renewals, each.ttl) for each in backend.describe("settle").tenures] == [(1, 50.0), (2, 50.0)]
    drive(store.rule.release(running, lease.claim), store.perform)
    holders = backend.describe("settle")
    assert [owner.extra["state"] for owner in holders.holders] == ["running", "queued"]
    assert holders.tenures == (holders.tenures[0], Tenure())
    assert holders.tenure.renewals == 1


def test_a_node_that_knows_less():
    """Of several nodes the one that has known a holding for longest tells."""
    owner = json.dumps({"host": "a", "ttl": 20}).encode()
    share = [b"token " + owner, b"semaphore@30000 x"]
    for kind, value in ((b"string", b"token " + owner), (b"hash", share)):
        replies = [[kind, value, 10_000, 0, b"d", 20_000, told] for told in ([], [b"token", b"7 90000 20000"], [])]
        view = merged([read_held("x", reply, str(node)) for node, reply in enumerate(replies)])
        assert view.tenures == (Tenure(100.0, 7, 10.0, 20.0),)


def test_unknown():
    """Of a lock without an end, or of another program's, nothing is known, and nothing made up."""
    told = [read_held("x", [b"string", value, left, 0, b"d", 0, []]) for value, left in ((b"theirs", 9), (b"t {}", 9))]
    told += [read_held("x", [b"string", b't {"ttl":20}', -1, 0, b"d", 0, []]), Held("x", "mutex", Owner(), 1.0)]
    assert [held.tenure for held in told] == [Tenure()] * 4
