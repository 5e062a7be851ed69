"""Servers that refuse blocking commands, temporarily or permanently."""

import contextlib
import threading
import time

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockError
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT, AsyncClient, SyncClient
from tests.support.service import poll

pytestmark = pytest.mark.usefixtures("woken_only")
FEW = 200  # commands: a waiter that spins sends some 10,000 in a second


@pytest.fixture
def server(own_redis):
    return own_redis()


@pytest.fixture
def admin(server):
    with server.client(decode_responses=True) as client:
        yield client


def blocked(admin):
    return [client["id"] for client in admin.client_list() if client["cmd"] == "blpop"]


def commands(admin):
    return admin.info("stats")["total_commands_processed"]


@pytest.mark.parametrize("kind", ["lock", "fair"])
@pytest.mark.parametrize("face", [SyncClient, AsyncClient], ids=["sync", "async"])
def test_a_user_who_may_not_block(server, admin, unique, face, kind):
    """A waiter without the right to block polls with growing pauses, and is granted the lock."""
    admin.acl_setuser("waiter", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-blpop"])
    holder = RedisBackend(server.url, node_timeout=5)
    client = face(RedisBackend(server.url.replace("redis://", "redis://waiter:x@"), node_timeout=5))
    with contextlib.closing(holder):
        lock = holder.lock(unique, fair=kind == "fair")
        lock.acquire()
        before = commands(admin)
        assert not client.lock(unique, fair=kind == "fair").acquire(timeout=2)
        assert commands(admin) - before < FEW
        timer = threading.Timer(1, lock.release)
        timer.start()
        assert client.lock(unique, fair=kind == "fair").acquire(timeout=TEST_TIMEOUT)
        timer.join()
    client.backend.close()


@pytest.mark.parametrize("face", [SyncClient, AsyncClient], ids=["sync", "async"])
def test_the_first_wait_of_a_user_who_may_not_block(server, admin, unique, face):
    """The first waiter, whose BLPOP is refused, stays listed and gets the lock long before its own deadline."""
    admin.acl_setuser("waiter", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-blpop"])
    client = face(RedisBackend(server.url.replace("redis://", "redis://waiter:x@"), node_timeout=5))
    with contextlib.closing(RedisBackend(server.url, node_timeout=5)) as holder:
        lock = holder.lock(unique)
        lock.acquire()
        timer = threading.Timer(0.3, lock.release)
        timer.start()
        began = time.monotonic()
        assert client.lock(unique).acquire(timeout=4.5)
        assert time.monotonic() - began < 4
        timer.join()
    client.backend.close()


@pytest.mark.parametrize("face", [SyncClient, AsyncClient], ids=["sync", "async"])
def test_a_wake_up_list_of_another_type(server, admin, unique, face):
    client = face(RedisBackend(server.url, node_timeout=5))
    with contextlib.closing(RedisBackend(server.url, node_timeout=5)) as holder, holder.lock(unique):
        admin.set(f"redlock:{{{unique}}}:wake", "x")
        with pytest.raises(LockError, match="another kind of lock"):
            client.lock(unique).acquire(timeout=TEST_TIMEOUT)
    client.backend.close()


@pytest.mark.parametrize("face", [SyncClient, AsyncClient], ids=["sync", "async"])
def test_unblocked_by_an_operator(server, admin, unique, face):
    """A waiter survives ``CLIENT UNBLOCK … ERROR`` and does not retry in a busy loop."""
    client, holder = face(RedisBackend(server.url, node_timeout=5)), RedisBackend(server.url, node_timeout=5)
    granted = []
    with contextlib.closing(holder):
        lock = holder.lock(unique)
        lock.acquire()
        waiter = threading.Thread(target=lambda: granted.append(client.lock(unique).acquire(timeout=TEST_TIMEOUT)))
        waiter.start()
        for _ in range(3):
            poll(
                lambda: any(admin.client_unblock(each, error=True) for each in blocked(admin)),
                timeout=TEST_TIMEOUT,
                what="a waiter that blocks",
            )
        lock.release()
        waiter.join(TEST_TIMEOUT)
    assert granted == [True]
    client.backend.close()
