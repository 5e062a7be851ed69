"""Locks in fakeredis' TcpFakeServer, a Redis written in Python that listens on a port."""

import threading

import pytest
from fakeredis import TcpFakeServer

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT


@pytest.fixture
def url():
    with TcpFakeServer(("127.0.0.1", 0), server_type="redis") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "redis://{}:{}/0".format(*server.server_address)
        server.shutdown()


def test_fakeredis(url, unique, client_of):
    """A lock is granted, refused, renewed and handed to a waiter."""
    backend = RedisBackend(url, node_timeout=5, history=False)
    holder, waiter = backend.lock(unique, ttl=0.6), client_of(backend).lock(unique, fencing=True)
    holder.acquire()
    assert not waiter.acquire(timeout=1.2)  # two leases: it was renewed
    holder.check()
    timer = threading.Timer(0.2, holder.release)
    timer.start()
    assert waiter.acquire(timeout=TEST_TIMEOUT)
    assert waiter.fencing_token
    waiter.release()
    timer.join()
    assert not backend.held()
