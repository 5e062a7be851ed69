"""Servers that refuse blocking commands, temporarily or permanently."""

import contextlib
import threading
import time

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockError
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
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


@pytest.fixture
def holder(server):
    with contextlib.closing(RedisBackend(server.url, node_timeout=5)) as backend:
        yield backend


@pytest.fixture
def forbidden(server, admin, client_of):
    admin.acl_setuser("waiter", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-blpop"])
    return client_of(RedisBackend(server.url.replace("redis://", "redis://waiter:x@"), node_timeout=5))


@contextlib.contextmanager
def released_after(seconds, lock):
    timer = threading.Timer(seconds, lock.release)
    timer.start()
    yield
    timer.join()


@pytest.mark.parametrize("fair", [False, True], ids=["lock", "fair"])
def test_a_user_who_may_not_block(admin, holder, forbidden, unique, fair):
    """A waiter without the right to block polls with growing pauses, and is granted the lock."""
    lock, waiting = (each.lock(unique, fair=fair) for each in (holder, forbidden))
    lock.acquire()
    before = admin.info("stats")["total_commands_processed"]
    assert not waiting.acquire(timeout=2)
    assert admin.info("stats")["total_commands_processed"] - before < FEW
    with released_after(1, lock):
        assert waiting.acquire(timeout=TEST_TIMEOUT)


def test_the_first_wait_of_a_user_who_may_not_block(holder, forbidden, unique):
    """The first waiter, whose BLPOP is refused, stays listed and gets the lock long before its own deadline."""
    lock = holder.lock(unique)
    lock.acquire()
    began = time.monotonic()
    with released_after(0.3, lock):
        assert forbidden.lock(unique).acquire(timeout=4.5)
    assert time.monotonic() - began < 4


def test_a_wake_up_list_of_another_type(server, admin, holder, client_of, unique):
    with holder.lock(unique):
        admin.set(f"redlock:{{{unique}}}:wake", "x")
        with pytest.raises(LockError, match="another kind of lock"):
            client_of(RedisBackend(server.url, node_timeout=5)).lock(unique).acquire(timeout=TEST_TIMEOUT)


def test_unblocked_by_an_operator(server, admin, holder, client_of, unique):
    """A waiter survives ``CLIENT UNBLOCK … ERROR`` and does not retry in a busy loop."""
    waiting, granted = client_of(RedisBackend(server.url, node_timeout=5)).lock(unique), []
    waiter = threading.Thread(target=lambda: granted.append(waiting.acquire(timeout=TEST_TIMEOUT)))

    def unblocked():
        blocked = [client["id"] for client in admin.client_list() if client["cmd"] == "blpop"]
        return any(admin.client_unblock(each, error=True) for each in blocked)

    with holder.lock(unique):
        waiter.start()
        for _ in range(3):
            poll(unblocked, timeout=TEST_TIMEOUT, what="a waiter that blocks")
    waiter.join(TEST_TIMEOUT)
    assert granted == [True]
