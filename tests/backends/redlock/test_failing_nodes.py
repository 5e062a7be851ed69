"""Redlock on five real nodes that hang, die, come back or reply late."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from tests.support.locks import SHORT, connected, crash, granted, held_by_all, held_on, renew_now
from tests.support.service import poll

KEY = "redlock:{stock}"
LONG = {"ttl": 30, "max_ttl": 30, "node_timeout": 3}  # seconds: within a lease everything happens that has to
BRIEF = {**SHORT, "node_timeout": 1, "key_prefix": "brief"}  # quarantines whose end is waited for
# The quarantine of the node that is back first must still last when the third node is back.
RESTARTS = {"ttl": 6, "max_ttl": 6, "node_timeout": 3, "key_prefix": "restarts"}
CROWD = {"ttl": 20, "max_ttl": 20, "node_timeout": 10, "key_prefix": "crowd"}


@pytest.fixture
def servers(own_nodes):
    """Five nodes in service."""
    servers = own_nodes(5)
    for options in (LONG, BRIEF):
        backend = store(servers, **options)
        assert list(backend.arm().values()) == ["armed"] * 5
        backend.close()
    return servers


def store(places, **options):
    return RedlockBackend([place.url for place in places], **{**LONG, **options})


def all_free(servers, key=KEY):
    poll(lambda: held_on(servers, key) == 0, timeout=LONG["ttl"] / 2, what="nodes on which nothing is left")


def where(server):
    return f"127.0.0.1:{server.port}"


def test_two_hang_while_it_is_held(servers, client_of):
    """A lock is kept when two of its five nodes begin to hang, every attempt succeeds, and nothing is left behind."""
    lock = connected(client_of(store(servers, node_timeout=1))).lock("stock")
    assert lock.acquire()
    for server in servers[:2]:
        server.pause()
    end = lock.hold.lease.valid_until
    renew_now(lock)
    poll(lambda: lock.lost or lock.hold.lease.valid_until > end, timeout=20, what="a renewal")
    assert not lock.lost
    lock.release()
    for _ in range(50):
        assert lock.acquire(timeout=10)
        lock.release()
    for server in servers[:2]:
        server.resume()
    all_free(servers)


def test_three_of_five_hang(servers, client_of):
    """Without a majority, acquire() raises LockUnavailable after one node timeout, with the error of each node."""
    client = connected(client_of(store(servers, node_timeout=1.5)))
    for server in servers[:3]:
        server.pause()
    began = time.monotonic()
    with pytest.raises(LockUnavailable, match="no majority of the 5 nodes is available") as refused:
        client.lock("other").acquire()
    assert time.monotonic() - began < 4 * 1.5
    assert set(refused.value.errors) >= {where(server) for server in servers[:3]}
    for server in servers[:3]:
        server.resume()
    all_free(servers, "redlock:{other}")


def test_one_killed_and_back(servers, client_of):
    """With one of five nodes dead, locks are granted; the node takes part again when its quarantine is over."""
    client = connected(client_of(store(servers, **BRIEF)))
    servers[0].kill()
    lock = client.lock("stock")
    assert lock.acquire()
    lock.release()
    servers[0].start()

    def on_all():
        lock = client.lock("stock", auto_renew=False)
        assert lock.acquire(timeout=10)
        found = client.describe("stock")
        lock.release()
        return len(found.nodes) == 5

    poll(on_all, timeout=20, what="a lock on all five")


def test_a_majority_in_quarantine(servers, client_of):
    """With three of five nodes in quarantine no lock is granted, the error names them, the holder keeps its lock."""
    holder, other = client_of(store(servers, **RESTARTS)), client_of(store(servers, **RESTARTS))
    assert list(holder.backend.arm().values()) == ["armed"] * 5
    lock = connected(holder).lock("stock")
    assert lock.acquire()
    with ThreadPoolExecutor() as pool:
        list(pool.map(crash, servers[:3]))
    with pytest.raises(LockUnavailable, match=r"in quarantine for another .* redlock_check --arm") as refused:
        other.lock("else").acquire()
    assert set(refused.value.errors) >= {where(server) for server in servers[:3]}  # others may be slow, too
    poll(lambda: granted(other, "else"), timeout=60, what="the end of it")
    assert not other.lock("stock").acquire(blocking=False)
    assert not lock.lost
    lock.release()


def test_waits_for_nodes_that_are_connecting(servers, proxies, client_of):
    """If the connected nodes can't decide, acquire() waits for nodes to which a connection is being opened."""
    options = {"ttl": 20, "max_ttl": 20, "node_timeout": 3, "key_prefix": "slow"}
    armed = store(servers, **options)
    assert set(armed.arm().values()) == {"armed"}
    armed.close()
    servers[0].kill()
    servers[0].start()  # it grants nothing for now, and is quick to say so
    for proxy in proxies[3:]:
        proxy.delay(0.1)
    client = client_of(store(proxies, **options))
    lock = client.lock("stock")
    assert lock.acquire(blocking=False)
    lock.release()


@pytest.mark.parametrize("way", ["requests", "replies"])
@pytest.mark.parametrize(("late", "moment"), [(2, "acquire"), (3, "acquire"), (2, "release")])
def test_a_late_request_leaves_no_vote(servers, proxies, client_of, way, late, moment):
    """An acquire or release that is late on some nodes leaves no vote behind, whether the lock was granted or not."""
    client = connected(client_of(store(proxies, node_timeout=1 if late == 3 else 3)))
    lock = client.lock("stock", auto_renew=False)
    if moment == "release":
        assert lock.acquire()
        poll(lambda: held_on(servers) == 5, timeout=LONG["ttl"] / 2, what="the lock on all nodes")
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
    all_free(servers)


def test_split_votes_resolve(servers):
    """Sixteen clients that acquire at the same time, again and again, all get the lock after random pauses."""
    rounds, clients = 3, 16

    def fight(_):
        backend = store(servers, **CROWD)
        for _ in range(rounds):
            lock = backend.lock("stock")
            assert lock.acquire(timeout=60)
            lock.release()
        backend.close()
        return rounds

    store(servers, **CROWD).arm()
    with ThreadPoolExecutor(clients) as pool:
        assert sum(pool.map(fight, range(clients))) == rounds * clients


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
def test_one_server_twice(servers, client_of, again):
    """health() reports two URLs that lead to one server, because it would have two votes."""
    url = getattr(servers[1], again, servers[1].url.replace("/0", "/1"))
    rows = client_of(RedlockBackend([servers[0].url, servers[1].url, url], **LONG)).health()
    assert [row["ok"] for row in rows] == [True, True, False]
    assert rows[2]["problems"] == [f"is the same server as {where(servers[1])}: one server must not have two votes"]


def test_listing_without_a_majority(servers, client_of):
    """held(), describe() and force_release() raise LockUnavailable without a majority."""
    client = connected(client_of(store(servers)))
    for server in servers[:3]:
        server.kill()
    for ask in (client.held, lambda: client.describe("stock"), lambda: client.force_release("stock")):
        with pytest.raises(LockUnavailable, match="no majority") as refused:
            ask()
        assert len(refused.value.errors) == 3
