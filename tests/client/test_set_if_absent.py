"""A free mutex is acquired by SET NX alone. Anything else than its grant leads to the script."""

import threading

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.keys import keys_for
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.service import poll


@pytest.fixture
def client_at(client_of):
    """`client_at(url)`: a client of a backend."""
    return lambda url: client_of(RedisBackend(url, node_timeout=TEST_TIMEOUT))


@pytest.fixture
def redis(redis_server):
    with redis_server.client() as client:
        yield client


def lock_key(name):
    return keys_for(b"redlock", name.encode()).lock


def calls(redis, name):
    """How often the server has run a command, also in scripts."""
    return redis.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"]


def test_an_acquire_without_a_script(client_at, redis, redis_server, unique):
    """One command acquires a free lock, and writes what the script writes. There is no fencing token."""
    client = client_at(redis_server.url)
    assert client.lock("first").acquire()  # the first one of all tries whether the server runs scripts
    lock = client.lock(unique)
    for _ in range(2):
        redis.config_resetstat()
        assert lock.acquire()
        assert [calls(redis, each) for each in ("set", "multi", "time", "evalsha", "eval")] == [1, 0, 0, 0, 0]
        token, owner = redis.get(lock_key(unique)).split(b" ", 1)
        assert (len(token), owner[:8]) == (24, b'{"host":')
        assert 0 < redis.pttl(lock_key(unique)) <= 30_000
        assert lock.fencing_token is None
        lock.release()


def test_a_held_lock_takes_the_script(client_at, redis, redis_server, unique):
    """A refusal has the holder's lease, and the next acquire begins with the script, until the script grants."""
    client = client_at(redis_server.url)
    lock, other = client.lock(unique), client.lock(unique)
    assert lock.acquire()
    tries = []
    for _ in range(2):
        before = calls(redis, "set")
        assert not other.acquire(False)
        tries.append(calls(redis, "set") - before)
    assert tries == [1, 0]
    lock.release()
    for expected in (1, 0):  # the script sets the key, too
        before = calls(redis, "evalsha")
        assert other.acquire(False)
        assert calls(redis, "evalsha") - before == expected
        other.release()


def test_a_reserved_lock(client_at, redis, redis_server, unique):
    """A lock that is reserved for a waiter is free for a caller that can't wait, and not listed."""
    client = client_at(redis_server.url)
    redis.set(lock_key(unique), b"reserved", px=60_000)
    assert not client.lock(unique).locked()
    assert unique not in [each.name for each in client.backend.held()]
    lock = client.lock(unique)
    assert lock.acquire(False)
    assert lock.owned()


def test_a_lost_reply(client_at, proxy, redis, unique):
    """If the connection breaks after SET, the script finds the grant."""
    client = client_at(proxy.url)
    assert not client.lock(unique).locked()  # connects
    lost = proxy.lose_next_reply(b"$2\r\nNX")
    lock = client.lock(unique)
    assert lock.acquire(False)
    assert lost.is_set()
    assert lock.owned()
    assert redis.get(lock_key(unique))


def test_a_late_grant(proxy, redis, unique):
    """A SET whose reply does not come in time is undone on the same connection."""
    backend = RedisBackend(proxy.url, node_timeout=0.5)
    assert backend.lock("first").acquire()  # connects, and tries whether the server runs scripts
    proxy.hold("replies")
    acquire = threading.Thread(target=pytest.raises, args=(LockUnavailable, backend.lock(unique).acquire))
    acquire.start()
    poll(lambda: redis.exists(lock_key(unique)), timeout=TEST_TIMEOUT, what="the grant")
    acquire.join()
    poll(lambda: not redis.exists(lock_key(unique)), timeout=TEST_TIMEOUT, what="its release")
    proxy.restore()
    backend.close()


def test_a_user_without_transactions(client_at, own_redis, unique):
    """A user or a proxy that has no MULTI, EXEC and TIME doesn't matter for a free lock."""
    server = own_redis()
    with server.client() as redis:
        redis.execute_command("ACL", "SETUSER", "locks", "on", ">secret", "~*", "+@all", "-multi", "-exec", "-time")
        lock = client_at(server.url.replace("redis://", "redis://locks:secret@")).lock(unique)
        for _ in range(3):
            assert lock.acquire()
            assert lock.owned()
            lock.release()
        assert not redis.exists(lock_key(unique))
        assert not redis.acl_log()
