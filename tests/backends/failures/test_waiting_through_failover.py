"""Waiters during failovers, moves of slots and restarts of nodes: they are woken or try again in time."""

import contextlib
import functools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.core.algorithms import single_node
from django_redlock.core.keys import hash_tag
from django_redlock.core.primitives import base
from django_redlock.errors import LockError, LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT, AsyncClient, SyncClient
from django_redlock.testing.conformance.harness.fixtures import eventually, until_someone_waits

WAKE = 10  # seconds: less than the time after which a waiter without a wake-up tries again, see `woken_only`
FAILOVER = 3 * TEST_TIMEOUT  # seconds: a Sentinel that was stopped for two does nothing for thirty


@pytest.fixture(params=[SyncClient, AsyncClient], ids=["sync", "async"])
def new_client(request):
    """`new_client(kind, location, **options)`: a client, blocking or asyncio."""
    with contextlib.ExitStack() as ends:

        def make(kind, location, **options):
            # A waiter also tries again when the lease that it knows has ended: with rare polls not before the poll.
            ttl = 30 if "woken_only" in request.fixturenames else 10
            client = request.param(kind(location, **{"node_timeout": 3, "ttl": ttl, **options}))
            ends.callback(client.close)
            return client

        yield make


@pytest.fixture
def spawn():
    """`spawn(function, *args)`: call it in a thread, and return a function that waits for its result."""
    pool = ThreadPoolExecutor()
    yield lambda function, *args: functools.partial(pool.submit(function, *args).result, timeout=FAILOVER)
    pool.shutdown()


class TestSentinel:
    """The master changes while a client waits."""

    @pytest.fixture
    def group(self, sentinel, monkeypatch):
        monkeypatch.setattr(single_node, "FAILOVER_SECONDS", FAILOVER)
        yield sentinel
        sentinel.heal()

    @pytest.fixture
    def users(self, group, new_client):
        return [new_client(RedisBackend, group.url) for _ in range(2)]

    @pytest.mark.parametrize("way", ["ordered", "killed"])
    def test_failover(self, group, users, unique, spawn, way):
        """A waiter goes on waiting on the new master and gets the lock there."""
        one, other = users
        holder = one.lock(unique, ttl=5, auto_renew=False)
        assert holder.acquire()
        waiting = spawn(other.lock(unique).acquire, True, FAILOVER)
        until_someone_waits(one, unique)
        former = group.master
        if way == "killed":
            former.kill()
            group.wait_for_new_master(former)
        else:
            group.failover()
        assert waiting()  # when it is released, or the lease that the new master knows has ended

    def test_failover_with_quarantine(self, group, new_client, unique, spawn):
        """With ReplicaBackend a waiter survives the failover and the quarantine of the new primary."""
        options = {"ttl": 2, "max_ttl": 2, "lag": 4, "key_prefix": unique}
        one, other = (new_client(ReplicaBackend, group.url, **options) for _ in range(2))
        assert list(one.backend.arm().values()) == ["armed"]
        assert one.lock(unique, auto_renew=False).acquire()
        waiting = spawn(other.lock(unique).acquire)
        until_someone_waits(one, unique)
        former = group.master
        former.kill()
        group.wait_for_new_master(former)
        assert waiting()

    def test_deadline(self, group, users, unique, spawn):
        """Without a master, a waiter gives up at its deadline with LockUnavailable."""
        one, other = users
        assert one.lock(unique, auto_renew=False).acquire()
        began = time.monotonic()
        waiting = spawn(other.lock(unique).acquire, True, 5)
        until_someone_waits(one, unique)
        for server in group.servers:
            server.kill()
        with pytest.raises(LockUnavailable):
            waiting()
        assert time.monotonic() - began >= 4.9


class TestCluster:
    """The slot of a lock moves to another node while a client waits."""

    @pytest.fixture
    def cluster(self, cluster):
        yield cluster
        cluster.heal()

    @pytest.fixture
    def users(self, cluster, new_client):
        return [new_client(RedisBackend, cluster.url) for _ in range(2)]

    @pytest.fixture
    def names(self, unique):
        """The names of the lock. The slot of the first one moves."""
        return [unique]

    @pytest.fixture
    def held(self, cluster, users, names, spawn):
        """A held lock, a waiter, a key, and a node to which its slot can move."""
        holder, other = (user.multilock(names) if len(names) > 1 else user.lock(*names) for user in users)
        assert holder.acquire()
        waiting = spawn(other.acquire, True, FAILOVER)
        until_someone_waits(users[0], names[0])
        owner = cluster.owner(_key(names[0]))
        return holder, waiting, _key(names[0]), next(node for node in cluster.nodes if node is not owner)

    @pytest.mark.usefixtures("woken_only")
    def test_everything_follows(self, cluster, held, users, names):
        """After a move of the slot all operations, of old and new clients, reach the new node."""
        holder, waiting, key, to = held
        cluster.move_slot(key, to)
        assert holder.owned()
        assert holder.extend() > 0
        assert users[1].describe(names[0]).waiters
        holder.release()
        assert waiting(timeout=WAKE)
        assert users[0].force_release(names[0])
        assert users[1].lock(names[0]).acquire(timeout=WAKE)

    def test_while_the_keys_migrate(self, cluster, held):
        holder, waiting, key, to = held
        with cluster.migrating(key, to):
            cluster.move_keys(key, to)
            with contextlib.suppress(LockUnavailable):  # it is freed as soon as that is possible
                holder.release()
        cluster.move_slot(key, to)
        assert waiting()


class TestSeveralSlots(TestCluster):
    """A client waits for a multilock with names on all three nodes."""

    @pytest.fixture
    def names(self, cluster, unique):
        """A name on each node, in the order in which their slots are acquired."""
        names = [name for (name,) in cluster.names_on_each(unique)]
        return sorted(names, key=lambda name: hash_tag(_key(name).encode()))

    @pytest.mark.parametrize("victim", range(3))
    def test_a_master_is_gone(self, cluster, held, names, victim):
        """A waiter for a multilock gets it when a master that was gone is back."""
        holder, waiting, *_ = held
        cluster.owner(_key(names[victim])).kill()
        with contextlib.suppress(LockError):  # what it had there is forgotten
            holder.release()
        cluster.heal()
        assert waiting()


class TestHalfMoved:
    """A slot migrates, and some keys of a lock are on neither node: the node replies TRYAGAIN."""

    @pytest.fixture
    def cluster(self, cluster):
        yield cluster
        cluster.heal()

    @pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
    def test_half_moved(self, cluster, new_client, unique, spawn, several):
        """A caller with time to wait acquires when the slot has moved, and one without gets LockUnavailable."""
        client, key = new_client(RedisBackend, cluster.url), _key(unique)
        make = (lambda: client.multilock([unique, unique + "}"])) if several else (lambda: client.lock(unique))
        to = next(node for node in cluster.nodes if node is not cluster.owner(key))
        with cluster.migrating(key, to):
            with pytest.raises(LockUnavailable, match=r"TRYAGAIN|[Mm]ultiple keys"):
                make().acquire(False)
            before = _times_tryagain(to)
            waiting = spawn(make().acquire, True, FAILOVER)
            assert eventually(lambda: _times_tryagain(to) > before + 1)
        assert waiting()


def _key(name):
    return f"redlock:{{{name}}}"


def _times_tryagain(node):
    with node.client() as client:
        return client.info("errorstats").get("errorstat_TRYAGAIN", {}).get("count", 0)


class TestQuorum:
    """Nodes fail and come back while a client waits."""

    @pytest.fixture(autouse=True)
    def _looks_often(self, monkeypatch):
        """A waiter looks again after two seconds at the latest, so that no test waits for five."""
        monkeypatch.setattr(base, "MAX_BLOCK", 2.0)

    @pytest.fixture
    def users(self, servers, new_client):
        urls = [server.url for server in servers]
        return [new_client(RedlockBackend, urls, quarantine=False) for _ in range(2)]

    @pytest.fixture
    def held(self, users, unique, spawn):
        """A held lock and a waiter."""
        one, other = users
        holder = one.lock(unique)
        assert holder.acquire()
        waiting = spawn(other.lock(unique).acquire, True, FAILOVER)
        until_someone_waits(one, unique)
        return holder, waiting

    @pytest.mark.parametrize("victim", range(3))
    @pytest.mark.parametrize("way", ["kill", "pause"])
    def test_a_node_is_gone(self, servers, held, victim, way):
        """Whichever node is gone when the lock is released, the waiter gets it."""
        holder, waiting = held
        getattr(servers[victim], way)()
        holder.release()
        assert waiting()
        if way == "pause":
            servers[victim].resume()

    def test_deadline(self, servers, held, users, unique, spawn):
        """With a node that hangs a waiter gives up at its deadline, without the lock."""
        servers[0].pause()
        began = time.monotonic()
        waiting = spawn(users[0].lock(unique).acquire, True, 1)
        assert waiting() is False
        assert time.monotonic() - began >= 1
        servers[0].resume()
        held[0].release()
        assert held[1]()

    def test_no_majority(self, servers, held):
        for server in servers[:2]:
            server.kill()
        with pytest.raises(LockUnavailable):
            held[1]()
