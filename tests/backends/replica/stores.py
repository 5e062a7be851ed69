"""Stores and helpers for the tests of ReplicaLock."""

from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockUnavailable
from tests.backends.conftest import SHORT

OPTIONS = {**SHORT, "lag": 2, "wait_timeout": 2}
LASTING = {"ttl": 40, "max_ttl": 40, "key_prefix": "slow"}  # leases whose end is not waited for


def store(group, **options):
    return ReplicaBackend(group.primary.url, **{**OPTIONS, **options})


def has(server, key="redlock:{stock}"):
    with server.client() as client:
        return bool(client.exists(key))


def granted(client, name="stock"):
    """Return whether the lock can be acquired. It is released at once."""
    lock = client.lock(name)
    try:
        taken = lock.acquire(blocking=False)
    except LockUnavailable:
        return False
    if taken:
        lock.release()
    return taken
