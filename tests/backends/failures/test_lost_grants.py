"""A grant whose reply was lost with its connection is released when the store serves again."""

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockUnavailable
from tests.support.proxy import Proxy
from tests.support.service import poll

LEASE = 60  # seconds: longer than a test waits for the release
WAIT = 40


@pytest.fixture(params=["single", "replica"])
def store(request, start):
    """The class of a backend, and the URL of its server."""
    if request.param == "single":
        return RedisBackend, request.getfixturevalue("redis_server").url
    return ReplicaBackend, request.getfixturevalue("two").primary.url


@pytest.fixture
def proxied(start, store):
    return start(Proxy(store[1]))


def new_backend(kind, url):
    return kind(
        url, ttl=LEASE, node_timeout=1, **({} if kind is RedisBackend else {"quarantine": False, "min_replicas": 1})
    )


@pytest.fixture
def client(client_of, store, proxied):
    return client_of(new_backend(store[0], proxied.url))


@pytest.fixture
def near(store):
    return new_backend(*store)


def lose_grant(proxied, unique, acquire):
    """Let the server grant a lock while the reply is lost with its connection, and the repeat is refused."""
    lost = proxied.lose_next_reply(unique.encode())
    proxied.refuse()
    with pytest.raises(LockUnavailable) as caught:
        acquire()
    assert lost.is_set()
    return caught.value


@pytest.mark.parametrize("kind", ["lock", "every", "semaphore", "striped", "multilock"])
def test_lock(proxied, client, near, unique, kind):
    """The release is repeated until the store is back. A periodic lock keeps its period for the next caller."""
    make = {
        "lock": client.lock,
        "every": lambda name: client.lock(name, every=3600),
        "semaphore": lambda name: client.semaphore(name, limit=2),
        "striped": lambda name: client.striped(name, 2),
        "multilock": lambda name: client.multilock([name, f"{{{name}}}:more"]),
    }[kind]
    assert make("first").acquire()  # the connection is open now, and the server knows the scripts
    assert lose_grant(proxied, unique, lambda: make(unique).acquire(False)).unconfirmed
    assert near.held(f"*{unique}*")
    proxied.restore()
    poll(lambda: not near.held(f"*{unique}*"), timeout=WAIT, what="the release of the lost grant")
    assert make(unique).acquire(False)


def test_adopted_lock(proxied, client, near, unique):
    """The adopting process has failed: the lease that was handed off ends at once, and not with its ttl."""
    held = near.lock(unique, ttl=LEASE)
    assert held.acquire()
    text = held.hand_off()
    first = near.lock("first", ttl=LEASE)
    assert first.acquire()
    client.adopt_text(first.hand_off())  # the connection is open now, and the server knows the scripts
    lose_grant(proxied, unique, lambda: client.adopt_text(text))
    assert near.describe(unique)
    proxied.restore()
    poll(lambda: near.describe(unique) is None, timeout=WAIT, what="the release of the lost grant")


def test_nothing_is_left_to_release(proxied, client, unique):
    """A store that can't be reached was sent nothing, so there is nothing to release in the background."""
    with client.lock(f"{unique}:first"):
        pass
    proxied.cut()
    proxied.refuse()
    with pytest.raises(LockUnavailable):
        client.lock(unique).acquire(False)  # the first request meets a closed connection
    with pytest.raises(LockUnavailable) as caught:
        client.lock(unique).acquire(False)
    assert not caught.value.unconfirmed
