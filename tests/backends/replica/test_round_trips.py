"""ReplicaLock's requests: a confirmation costs no round trip; new replicas, and keys and scripts that were deleted."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.replica import ReplicaBackend
from django_redlock.core.flow.requests import Fault
from django_redlock.core.values import Lease
from django_redlock.errors import LockError, LockUnavailable
from testproject.redis_server import RedisServer
from tests.backends.replica.stores import LASTING, OPTIONS, extended, has, lag_out, store
from tests.support.group import Group
from tests.support.locks import SHORT, granted
from tests.support.proxy import Proxy
from tests.support.replicas import REPLICATION, replicate
from tests.support.service import poll

PATIENT = {**OPTIONS, "wait_timeout": 5, "ttl": 20, "max_ttl": 20, "node_timeout": 8, "key_prefix": "wire"}


@pytest.fixture
def front(start, two):
    return start(Proxy(two.primary.url))


@pytest.fixture
def said(two):
    """`said()`: the commands that clients have sent to the primary since the last call."""
    with two.primary.client(socket_timeout=10) as direct:
        monitor = direct.monitor()  # which keeps a connection; what is echoed has another

        def words(until=""):
            while True:
                told = monitor.next_command()
                word = told["command"].split()[0]
                if word == until:
                    return
                if told["client_type"] != "lua" and word != "REPLCONF":
                    yield word

        direct.ping()
        with monitor:
            yield words, lambda: direct.echo("that was all")


@pytest.fixture
def lock(front, client_of):
    """A lock without renewal, of a connected client whose scripts are loaded."""
    client = client_of(ReplicaBackend(front.url, **PATIENT))
    client.backend.arm()
    lock = client.lock("stock", auto_renew=False)
    assert lock.acquire()
    lock.extend()
    lock.release()
    return lock


@pytest.mark.parametrize("step", ["acquire", "extend", "release"])
def test_one_round_trip(front, lock, said, step):
    """The script and WAIT are sent together in one round trip, and nothing else is sent."""
    words, that_was_all = said
    if step != "acquire":
        assert lock.acquire()
        that_was_all()
        list(words(until="ECHO"))
    front.hold("replies")
    touch = ["EVALSHA"] if step == "extend" else []  # starts the quarantine's clock, if that is due
    expected = ["EVALSHA"] if step == "release" else ["EVALSHA", *touch, "WAIT"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(getattr(lock, step))
        try:
            assert list(itertools.islice(words(), len(expected))) == expected
            assert not asked.done()
        finally:
            front.restore()
        asked.result(20)
    that_was_all()
    assert not list(words(until="ECHO"))
    assert (lock.remaining > 0) == (step != "release")


def test_a_new_replica(start, client_of):
    """While a new replica confirms nothing, acquire() is refused and leaves nothing behind; later it succeeds."""
    usual = "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "1"
    primary, replica = start(Group(RedisServer(*usual) for _ in range(2))).servers
    options = {**OPTIONS, "wait_timeout": 0.2, "node_timeout": 5, "quarantine": False, "min_replicas": 1}
    client = client_of(ReplicaBackend(primary.url, **options))
    lock, refusals = client.lock("stock", auto_renew=False), []

    def confirmed():
        try:
            return lock.acquire(blocking=False)
        except LockUnavailable as error:
            refusals.append(str(error))
            assert not has(primary)
            return False

    replicate(replica, primary.port)
    poll(confirmed, timeout=20, what="a confirmed grant")
    assert has(replica)
    assert all("0 of 1 replicas confirmed within 0.2 s" in each for each in refusals)
    assert refusals
    lock.release()


@pytest.mark.parametrize("renewed", [True, False])
def test_replicas_that_are_added(start, two, client_of, renewed):
    """Renewals wait for a majority of the replicas that the primary names, also of those that are added later."""
    options = {**PATIENT, "ttl": 60, "max_ttl": 60, "node_timeout": 10}
    holder, other = (client_of(ReplicaBackend(two.primary.url, **options)) for _ in range(2))
    holder.backend.arm()
    lock = holder.lock("stock", auto_renew=False)
    assert lock.acquire()
    for server in start(Group(RedisServer(*REPLICATION) for _ in range(2))).servers:
        two.follow(server)
    with two.primary.client() as direct:
        poll(
            lambda: granted(other, "else") and direct.get("wire:marker").endswith(b"|4"),
            timeout=20,
            what="a primary that has seen four replicas",
        )
    lost = two.replicas[1:]
    if renewed:
        lock.extend()
        two.cut_off(*lost)
    else:
        two.cut_off(*lost)
        lag_out(two, len(lost))
    before = lock.hold.lease.valid_until
    with pytest.raises(LockUnavailable, match="1 of 2 replicas confirmed"):
        lock.extend()
    assert lock.hold.lease.valid_until == before
    two.rejoin(*lost)
    poll(lambda: extended(lock), timeout=20, what="a confirmed extension")
    lock.release()


@pytest.fixture
def admin(two):
    with two.primary.client() as client:
        yield client


def test_script_flush(two, client_of, admin):
    """After SCRIPT FLUSH each operation is sent once more, and is confirmed by replicas as usual."""
    holder, other = client_of(store(two)), client_of(store(two))
    for client in (holder, other):
        poll(lambda client=client: granted(client), timeout=20, what="a reply in time")
    lock = holder.lock("stock", auto_renew=False)
    admin.script_flush()
    assert lock.acquire()
    assert any(map(has, two.replicas))
    admin.script_flush()
    assert not other.lock("stock").acquire(blocking=False)
    admin.script_flush()
    assert lock.extend() > SHORT["ttl"] / 2
    admin.script_flush()
    lock.release()
    assert not has(two.primary)
    assert granted(other)


@pytest.mark.parametrize("taken", range(3))
def test_a_key_of_another_type(two, client_of, admin, taken):
    """A lock whose key has another type now is not extended. The locks that are renewed together with it are."""
    backend = store(two, node_timeout=10, wait_timeout=10, **LASTING)
    client = client_of(backend)
    backend.arm()
    locks = [client.lock(name, auto_renew=False) for name in "abc"]
    assert all(lock.acquire() for lock in locks)
    key = locks[taken].keys.lock
    admin.delete(key)
    admin.hset(key, "another", "kind")
    leases = [(lock.hold.lease, LASTING["ttl"]) for lock in locks]
    outcomes = backend.drive(backend.algorithm.extend_many(locks[0].primitive, leases))
    assert [type(outcome) for outcome in outcomes] == [Fault if each == taken else Lease for each in range(3)]
    with pytest.raises(LockError, match=f"lock '{'abc'[taken]}': another kind of lock, or another program, uses"):
        locks[taken].extend()
