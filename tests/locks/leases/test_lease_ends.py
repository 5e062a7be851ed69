"""The ends of leases, on one Redis, a quorum and a primary with replicas: no extension, and no wait."""

import time

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.core.primitives import base
from django_redlock.errors import LockLost
from tests.support.locks import AdvancedClock, connected
from tests.support.replicas import Replicated
from tests.support.service import poll

KEY = "redlock:{stock}"
OPTIONS = {"ttl": 60, "max_ttl": 60, "node_timeout": 5}


@pytest.fixture(params=[RedisBackend, RedlockBackend, ReplicaBackend])
def place(request, start, own_nodes):
    """The servers that decide, and a function that creates a backend there."""
    kind = request.param
    if kind is ReplicaBackend:
        servers = [start(Replicated(1)).primary]
    else:
        servers = own_nodes(3 if kind is RedlockBackend else 1)
    location = [server.url for server in servers] if kind is RedlockBackend else servers[0].url

    def make(**options):
        return kind(location, **OPTIONS, **options)

    backend = make()
    if backend.quarantine:
        assert set(backend.arm().values()) == {"armed"}
    backend.close()
    return servers, make


def test_expired_lease_is_not_extended(place, client_of):
    """An expired lease is not extended, because servers with old data would grant it."""
    (servers, make), clock = place, AdvancedClock()
    client = connected(client_of(make(clock=clock)))  # a node that is connected late gets no request
    lock = client.lock("stock", auto_renew=False)
    assert lock.acquire()
    clients = [server.client() for server in servers]
    poll(lambda: all(client.exists(KEY) for client in clients), timeout=20, what="all votes")
    assert all(client.persist(KEY) for client in clients)
    clock.ahead = 61
    assert lock.lost
    with pytest.raises(LockLost):
        lock.extend()
    assert all(client.ttl(KEY) < 0 for client in clients)
    for client in clients:
        client.close()


def test_waiter_gets_the_lock_at_the_end_of_the_lease(place, client_of, monkeypatch):
    monkeypatch.setattr(base, "MAX_BLOCK", 60.0)
    servers, make = place
    lock = client_of(make()).lock("stock")
    for server in servers:
        with server.client() as client:
            client.set(KEY, "another", px=2000)
    began = time.monotonic()
    assert lock.acquire(timeout=60)
    assert time.monotonic() - began < 20
    lock.release()
