"""Locks in fakeredis' TcpFakeServer, a Redis written in Python that listens on a port."""

import contextlib
import threading

import pytest
from fakeredis import TcpFakeServer

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT, AsyncClient, SyncClient


@pytest.fixture
def url():
    with TcpFakeServer(("127.0.0.1", 0), server_type="redis") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "redis://{}:{}/0".format(*server.server_address)
        server.shutdown()


@pytest.mark.parametrize("face", [SyncClient, AsyncClient], ids=["sync", "async"])
def test_fakeredis(url, unique, face):
    """A lock is granted, refused, renewed and handed to a waiter."""
    with contextlib.closing(RedisBackend(url, node_timeout=5, history=False)) as backend:
        holder, waiter = backend.lock(unique, ttl=0.6), face(backend).lock(unique, fencing=True)
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
