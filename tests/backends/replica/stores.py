"""Stores and helpers for the tests of ReplicaLock."""

import contextlib

from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockUnavailable
from tests.support.locks import SHORT
from tests.support.service import poll

OPTIONS = {**SHORT, "lag": 2, "wait_timeout": 2}
LASTING = {"ttl": 40, "max_ttl": 40, "key_prefix": "slow"}  # leases whose end is not waited for


def store(group, **options):
    return ReplicaBackend(group.primary.url, **{**OPTIONS, **options})


def has(server, key="redlock:{stock}"):
    with server.client() as client:
        return bool(client.exists(key))


def extended(lock):
    with contextlib.suppress(LockUnavailable):
        return lock.extend() > 0
    return False


def lag_out(group, replicas):
    """Wait until the primary has had no reply from so many replicas for longer than `lag`."""
    with group.primary.client() as client:

        def silent():
            info = client.info("replication")
            lags = [value["lag"] for key, value in info.items() if key.startswith("slave") and "lag" in value]
            return sum(lag > OPTIONS["lag"] for lag in lags) >= replicas

        poll(silent, timeout=20, what="replicas that are given up")
