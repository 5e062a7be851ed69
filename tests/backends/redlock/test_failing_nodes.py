"""Redlock on five real nodes that hang, die, come back or reply late."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockLost, LockUnavailable
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.locks import SHORT, crash, granted, held_by_all, held_on
from tests.support.proxy import Proxy
from tests.support.service import poll

KEY = "redlock:{stock}"
LONG = {"ttl": 30, "max_ttl": 30, "node_timeout": 3}  # seconds: within a lease everything happens that has to
BRIEF = {**SHORT, "node_timeout": 1, "key_prefix": "brief"}  # leases and quarantines whose end is waited for
BRIEF_KEY = "brief:{stock}"
# The quarantine of the node that is back first must still last when the third node is back.
RESTARTS = {"ttl": 10, "max_ttl": 10, "node_timeout": 3, "key_prefix": "restarts"}
CROWD = {"ttl": 20, "max_ttl": 20, "node_timeout": 10, "key_prefix": "crowd"}


@pytest.fixture
def five(start):
    """Five nodes in service."""
    servers = start(Group(RedisServer() for _ in range(5))).servers
    for options in (LONG, BRIEF):
        backend = store(servers, **options)
        assert list(backend.arm().values()) == ["armed"] * 5
        backend.close()
    return servers


@pytest.fixture
def proxies(start, five):
    """A proxy in front of each node."""
    return [start(Proxy(server.url)) for server in five]


def store(places, **options):
    return RedlockBackend([place.url for place in places], **{**LONG, **options})


def connected(client):
    """Return the client when it has an open connection to each node."""
    assert all(row["ok"] for row in client.backend.health())
    return client


def all_free(servers):
    poll(lambda: held_on(servers) == 0, timeout=LONG["ttl"] / 2, what="nodes on which nothing is left")


def where(server):
    return f"127.0.0.1:{server.port}"


def test_two_hang_while_it_is_held(five, client_of):
    """A lock is kept when two of its five nodes begin to hang, every attempt succeeds, and nothing is left behind."""
    client = connected(client_of(store(five, **BRIEF)))
    lock = client.lock("stock")
    assert lock.acquire()
    for server in five[:2]:
        server.pause()
    began = time.monotonic()
    poll(lambda: time.monotonic() - began > 1.5 * SHORT["ttl"], timeout=20, what="one and a half leases")
    assert not lock.lost
    lock.release()
    for _ in range(50):
        assert lock.acquire(timeout=10)
        lock.release()
    for server in five[:2]:
        server.resume()
    poll(lambda: held_on(five, BRIEF_KEY) == 0, timeout=20, what="nodes on which nothing is left")


def test_three_of_five_hang(five, client_of):
    """Without a majority, acquire() raises LockUnavailable after one node timeout, with the error of each node."""
    client = client_of(store(five, ttl=30, max_ttl=30, node_timeout=3, key_prefix="slow"))
    client.backend.arm()
    connected(client)
    for server in five[:3]:
        server.pause()
    began = time.monotonic()
    with pytest.raises(LockUnavailable, match="no majority of the 5 nodes is available") as refused:
        client.lock("other").acquire()
    assert time.monotonic() - began < 2.8 * 3
    assert set(refused.value.errors) >= {where(server) for server in five[:3]}
    for server in five[:3]:
        server.resume()
    poll(lambda: held_on(five, "slow:{other}") == 0, timeout=20, what="nodes on which nothing is left")


def test_one_killed_and_back(five, client_of):
    """With one of five nodes dead, locks are granted; the node takes part again when its quarantine is over."""
    client = connected(client_of(store(five, **BRIEF)))
    five[0].kill()
    lock = client.lock("stock")
    assert lock.acquire()
    lock.release()
    five[0].start()

    def on_all():
        lock = client.lock("stock", auto_renew=False)
        assert lock.acquire(timeout=10)
        found = client.describe("stock")
        lock.release()
        return len(found.nodes) == 5

    poll(on_all, timeout=20, what="a lock on all five")


def test_a_majority_in_quarantine(five, client_of):
    """With three of five nodes in quarantine no lock is granted, the error names them, the holder keeps its lock."""
    holder, other = client_of(store(five, **RESTARTS)), client_of(store(five, **RESTARTS))
    assert list(holder.backend.arm().values()) == ["armed"] * 5
    lock = connected(holder).lock("stock")
    assert lock.acquire()
    with ThreadPoolExecutor() as pool:
        list(pool.map(crash, five[:3]))
    with pytest.raises(LockUnavailable, match=r"in quarantine for another .* redlock_check --arm") as refused:
        other.lock("else").acquire()
    assert set(refused.value.errors) >= {where(server) for server in five[:3]}  # others may be slow on a busy machine
    poll(lambda: granted(other, "else"), timeout=60, what="the end of it")
    assert not other.lock("stock").acquire(blocking=False)
    assert not lock.lost
    lock.release()


def test_waits_for_nodes_that_are_connecting(five, proxies, client_of):
    """If the connected nodes can't decide, acquire() waits for nodes to which a connection is being opened."""
    options = {"ttl": 20, "max_ttl": 20, "node_timeout": 3, "key_prefix": "slow"}
    armed = store(five, **options)
    assert set(armed.arm().values()) == {"armed"}
    armed.close()
    five[0].kill()
    five[0].start()  # it grants nothing for now, and is quick to say so
    for proxy in proxies[3:]:
        proxy.delay(0.1)
    client = client_of(store(proxies, **options))
    lock = client.lock("stock")
    assert lock.acquire(blocking=False)
    lock.release()


@pytest.mark.parametrize("way", ["requests", "replies"])
@pytest.mark.parametrize(("late", "moment"), [(2, "acquire"), (3, "acquire"), (2, "release")])
def test_a_late_request_leaves_no_vote(five, proxies, client_of, way, late, moment):
    """An acquire or release that is late on some nodes leaves no vote behind, whether the lock was granted or not."""
    client = connected(client_of(store(proxies)))
    lock = client.lock("stock", auto_renew=False)
    if moment == "release":
        assert lock.acquire()
        poll(lambda: held_on(five) == 5, timeout=LONG["ttl"] / 2, what="the lock on all nodes")
    for proxy in proxies[:late]:
        proxy.hold(way)
    if late == 3:
        with pytest.raises(LockUnavailable):
            lock.acquire(timeout=0)
    else:
        assert lock.token or lock.acquire(timeout=10)
        lock.release()
    for proxy in proxies:
        proxy.restore()
    all_free(five)


def test_split_votes_resolve(five):
    """Sixteen clients that acquire at the same time, again and again, all get the lock after random pauses."""
    rounds, clients = 3, 16

    def fight(_):
        backend = store(five, **CROWD)
        for _ in range(rounds):
            lock = backend.lock("stock")
            assert lock.acquire(timeout=60)
            lock.release()
        backend.close()
        return rounds

    store(five, **CROWD).arm()
    with ThreadPoolExecutor(clients) as pool:
        assert sum(pool.map(fight, range(clients))) == rounds * clients


def test_a_lost_majority_is_a_lost_lock(five, client_of):
    """A holder whose lock is gone from three of five nodes gets LockLost from its next extension."""
    lock = connected(client_of(store(five))).lock("stock", auto_renew=False)
    assert lock.acquire()
    poll(lambda: held_on(five) == 5, timeout=LONG["ttl"] / 2, what="the lock on all nodes")
    for server in five[:3]:
        with server.client() as client:
            client.delete(KEY)
    with pytest.raises(LockLost):
        lock.extend()
    assert lock.lost


def test_nodes_of_any_kind(sentinel, redis_server, own_redis, settings, client_of):
    """A node may be a server, a master behind Sentinels, or the server of a cache."""
    settings.CACHES = {"node": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis_server.url}}
    third = own_redis()
    backend = RedlockBackend([sentinel.url, "cache:node", third.url], **LONG)
    backend.arm()
    client, servers = client_of(backend), [sentinel.master, redis_server, third]
    lock = client.lock("stock")
    held_by_all(lock, lambda: held_on(servers) == 3)
    lock.release()
    all_free(servers)


@pytest.mark.parametrize("again", ["url", "unix_url", "another database"])
def test_one_server_twice(five, client_of, again):
    """health() reports two URLs that lead to one server, because it would have two votes."""
    url = getattr(five[1], again, five[1].url.replace("/0", "/1"))
    rows = client_of(RedlockBackend([five[0].url, five[1].url, url], **LONG)).health()
    assert [row["ok"] for row in rows] == [True, True, False]
    assert rows[2]["problems"] == [f"is the same server as {where(five[1])}: one server must not have two votes"]


def test_listing_without_a_majority(five, client_of):
    """held(), describe() and force_release() raise LockUnavailable without a majority."""
    client = connected(client_of(store(five)))
    for server in five[:3]:
        server.kill()
    for ask in (client.held, lambda: client.describe("stock"), lambda: client.force_release("stock")):
        with pytest.raises(LockUnavailable, match="no majority") as refused:
            ask()
        assert len(refused.value.errors) == 3
