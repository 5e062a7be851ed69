"""ReplicaLock after its scripts, its data or the key of a held lock are deleted or replaced."""

import pytest

from django_redlock.core.flow.requests import Fault
from django_redlock.core.values import Lease
from django_redlock.errors import LockError, LockLost, LockUnavailable
from tests.backends.conftest import SHORT
from tests.backends.replica.stores import LASTING, has, store
from tests.support.locks import granted
from tests.support.service import poll

KEY = "redlock:{stock}"


@pytest.fixture
def clients(two, client_of):
    """Two connected clients: the holder and another one."""
    clients = client_of(store(two)), client_of(store(two))
    for client in clients:
        poll(lambda client=client: granted(client), timeout=20, what="a reply in time")
    return clients


@pytest.fixture
def admin(two):
    """A plain client of the primary."""
    with two.primary.client() as client:
        yield client


def test_script_flush(two, clients, admin):
    """After SCRIPT FLUSH each operation is sent once more, and is confirmed by replicas as usual."""
    holder, other = clients
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


def test_renewal_after_script_flush(clients, admin):
    """After SCRIPT FLUSH the background renewal goes on."""
    holder, other = clients
    lock = holder.lock("stock")
    assert lock.acquire()
    end = lock.hold.lease.valid_until
    admin.script_flush()
    poll(lambda: lock.hold.lease.valid_until > end + SHORT["ttl"] / 2, timeout=20, what="two renewals")
    assert not other.lock("stock").acquire(blocking=False)
    assert not lock.lost
    lock.release()


def test_renewal_after_flushall(two, clients, admin):
    """After FLUSHALL a renewal restores the lock, also on the replicas, and nothing else is granted during the
    quarantine.
    """
    holder, other = clients
    lock = holder.lock("stock")
    assert lock.acquire()
    admin.flushall()
    with pytest.raises(LockUnavailable, match="in quarantine"):
        other.lock("stock").acquire(blocking=False)
    poll(lambda: has(two.primary) and any(map(has, two.replicas)), timeout=20, what="the lock back in its place")
    poll(lambda: granted(other, "else"), timeout=30, what="the end of the quarantine")
    assert not other.lock("stock").acquire(blocking=False)
    assert not lock.lost
    lock.release()
    assert granted(other)


def test_release_after_flushall(clients, admin):
    """A release after FLUSHALL, before a renewal, raises LockLost, and no other client is granted the lock."""
    holder, other = clients
    lock = holder.lock("stock", auto_renew=False)
    assert lock.acquire()
    admin.flushall()
    with pytest.raises(LockLost):
        lock.release()
    with pytest.raises(LockUnavailable, match="in quarantine"):
        other.lock("stock").acquire(blocking=False)
    poll(lambda: granted(other), timeout=30, what="the end of the quarantine")
    assert lock.acquire()
    lock.release()


@pytest.mark.parametrize("method", ["extend", "release"])
def test_a_deleted_lock(two, clients, admin, method):
    """A lock whose key was deleted is lost: its holder gets LockLost, and does not disturb the next holder."""
    holder, other = clients
    lock, next_one = holder.lock("stock", auto_renew=False), other.lock("stock", auto_renew=False)
    assert lock.acquire()
    admin.delete(KEY)
    assert next_one.acquire()
    with pytest.raises(LockLost):
        getattr(lock, method)()
    assert next_one.owned()
    next_one.release()
    assert lock.acquire()
    lock.release()


def test_a_deleted_lock_is_not_put_back(two, clients, admin):
    """Without a quarantine a renewal does not restore a deleted key, and the lock is lost within a third of the ttl."""
    holder, other = clients
    lock = holder.lock("stock")
    assert lock.acquire()
    admin.delete(KEY)
    poll(lambda: lock.lost, timeout=20, what="the loss")
    assert not has(two.primary)
    assert granted(other)
    with pytest.raises(LockLost):
        lock.release()


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
        raise outcomes[taken].error
