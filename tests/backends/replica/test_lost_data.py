"""ReplicaLock after its scripts were deleted, or the key of a held lock was replaced."""

import pytest

from django_redlock.core.flow.requests import Fault
from django_redlock.core.values import Lease
from django_redlock.errors import LockError
from tests.backends.replica.stores import LASTING, has, store
from tests.support.locks import SHORT, granted
from tests.support.service import poll


@pytest.fixture
def admin(two):
    """A plain client of the primary."""
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
