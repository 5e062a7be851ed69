"""ReplicaLock after its scripts, its data or the key of a held lock are deleted."""

import pytest

from django_redlock.errors import LockLost, LockUnavailable
from tests.backends.conftest import SHORT
from tests.backends.replica.stores import granted, has, store
from tests.support.service import poll

KEY = "redlock:{stock}"


@pytest.fixture
def people(two, client_of):
    """Two connected clients: the holder and another one."""
    clients = client_of(store(two)), client_of(store(two))
    assert all(map(granted, clients))
    return clients


@pytest.fixture
def admin(two):
    """A plain client of the primary."""
    with two.primary.client() as client:
        yield client


def test_script_flush(two, people, admin):
    """Whatever comes after SCRIPT FLUSH is asked once more, confirmed as ever; nobody notices."""
    holder, other = people
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


def test_renewal_after_script_flush(people, admin):
    """So is a renewal in the background."""
    holder, other = people
    lock = holder.lock("stock")
    assert lock.acquire()
    end = lock._lease.valid_until
    admin.script_flush()
    poll(lambda: lock._lease.valid_until > end + SHORT["ttl"] / 2, timeout=20, what="two renewals")
    assert not other.lock("stock").acquire(blocking=False)
    assert not lock.lost
    lock.release()


def test_renewal_after_flushall(two, people, admin):
    """A renewal puts the lock back, on the replicas too; nobody else gets one, and after the quarantine all goes on."""
    holder, other = people
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


def test_release_after_flushall(people, admin):
    """Who releases before that is told LockLost, since the server can't know; but nobody else was granted it."""
    holder, other = people
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
def test_a_deleted_lock(two, people, admin, method):
    """Without its key it is lost, and free: the holder is told, takes nothing from the next, and may take it anew."""
    holder, other = people
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


def test_a_deleted_lock_is_not_put_back(two, people, admin):
    """A renewal doesn't bring it back, for there is no quarantine: lost, within a third of the ttl."""
    holder, other = people
    lock = holder.lock("stock")
    assert lock.acquire()
    admin.delete(KEY)
    poll(lambda: lock.lost, timeout=20, what="the loss")
    assert not has(two.primary)
    assert granted(other)
    with pytest.raises(LockLost):
        lock.release()
