"""Waiters during failovers, moves of slots and restarts of nodes: they are woken or try again in time."""

import contextlib
import itertools
import threading
import time

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.client.discovery import Redirection
from django_redlock.core.keys import hash_tag
from django_redlock.errors import LockError, LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT, AsyncClient, SyncClient
from django_redlock.testing.conformance.harness.fixtures import eventually, until_someone_waits

WAKE = 3  # seconds: less than the time after which a waiter without a wake-up tries again


@pytest.fixture(params=[SyncClient, AsyncClient], ids=["sync", "async"])
def new_client(request):
    """`new_client(kind, location, **options)`: a user, blocking or asyncio."""
    with contextlib.ExitStack() as ends:

        def make(kind, location, **options):
            client = request.param(kind(location, **{"node_timeout": 0.5, "ttl": 10, **options}))
            ends.callback(client.close)
            return client

        yield make


@pytest.fixture
def spawn():
    """`spawn(function, *args)`: run it in a thread; a function that waits for its result, and raises its error."""
    threads = []

    def run(function, *args):
        outcome = []

        def work():
            try:
                outcome.append(function(*args))
            except Exception as error:  # noqa: BLE001  (returned to the caller)
                outcome.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        threads.append(thread)

        def result(timeout=TEST_TIMEOUT):
            thread.join(timeout)
            assert outcome, "it still waits"
            if isinstance(outcome[0], Exception):
                raise outcome[0]
            return outcome[0]

        return result

    yield run
    for thread in threads:
        thread.join(TEST_TIMEOUT)


class TestSentinel:
    """The master is another one while somebody waits."""

    @pytest.fixture
    def group(self, sentinel):
        yield sentinel
        sentinel.heal()

    @pytest.fixture
    def users(self, group, new_client):
        return [new_client(RedisBackend, group.url) for _ in range(2)]

    @pytest.mark.parametrize("way", ["ordered", "killed"])
    def test_failover(self, group, users, unique, spawn, way):
        """Who waits goes on waiting on the new master, and has the lock when it is free there."""
        one, other = users
        holder = one.lock(unique, ttl=5, auto_renew=False)
        assert holder.acquire()
        waiting = spawn(other.lock(unique).acquire, True, TEST_TIMEOUT)
        until_someone_waits(one, unique)
        former = group.master
        if way == "killed":
            former.kill()
            group.wait_for_new_master(former)
        else:
            group.failover()
        assert waiting()  # when it is released, or the lease that the new master knows has ended

    def test_failover_with_quarantine(self, group, new_client, unique, spawn):
        """Where replicas confirm, who waits outlasts the failover and the new primary's quarantine."""
        options = {"ttl": 2, "max_ttl": 2, "key_prefix": unique}
        one, other = (new_client(ReplicaBackend, group.url, **options) for _ in range(2))
        assert list(one.backend.arm().values()) == ["armed"]
        assert one.lock(unique, auto_renew=False).acquire()
        waiting = spawn(other.lock(unique).acquire)
        until_someone_waits(one, unique)
        former = group.master
        former.kill()
        group.wait_for_new_master(former)
        assert waiting(3 * TEST_TIMEOUT)

    def test_deadline(self, group, users, unique, spawn):
        """With no master in sight it comes back when its time is up, and says that the store can't be asked."""
        one, other = users
        assert one.lock(unique, auto_renew=False).acquire()
        began = time.monotonic()
        waiting = spawn(other.lock(unique).acquire, True, 2)
        until_someone_waits(one, unique)
        for server in group.servers:
            server.kill()
        with pytest.raises(LockUnavailable):
            waiting()
        assert time.monotonic() - began >= 1.9

    def test_who_does_not_wait_yet(self, group, users, unique):
        """Who asks for the first time is told at once that there is nobody to ask."""
        for server in group.servers:
            server.kill()
        with pytest.raises(LockUnavailable):
            users[0].lock(unique).acquire(timeout=TEST_TIMEOUT)


class TestCluster:
    """The lock's slot goes to another node while somebody waits."""

    @pytest.fixture
    def cluster(self, cluster):
        yield cluster
        cluster.heal()

    @pytest.fixture
    def users(self, cluster, new_client):
        return [new_client(RedisBackend, cluster.url) for _ in range(2)]

    @pytest.fixture
    def held(self, cluster, users, unique, spawn):
        """A held lock, a waiter, the lock's keys, and where needed a node that its slot can move to."""
        one, other = users
        holder, key = one.lock(unique), f"redlock:{{{unique}}}"
        assert holder.acquire()
        waiting = spawn(other.lock(unique).acquire, True, TEST_TIMEOUT)
        until_someone_waits(one, unique)
        owner = cluster.owner(key)
        return holder, waiting, key, next(node for node in cluster.nodes if node is not owner)

    def test_slot_moves(self, cluster, held):
        """Who waits goes along, and is woken by the release."""
        holder, waiting, key, to = held
        cluster.move_slot(key, to)
        holder.release()
        assert waiting(WAKE)

    def test_everything_follows(self, cluster, held, users, unique):
        """So do the holder's requests, those of onlookers, and those who come later."""
        holder, waiting, key, to = held
        cluster.move_slot(key, to)
        assert holder.owned()
        assert holder.extend() > 0
        assert users[1].describe(unique).waiters
        holder.release()
        assert waiting(WAKE)
        assert users[0].force_release(unique)
        assert users[1].lock(unique).acquire(timeout=WAKE)

    def test_while_it_moves(self, cluster, held):
        """While its keys are on their way, which takes long here, it goes on waiting."""
        holder, waiting, key, to = held
        with cluster.migrating(key, to):
            cluster.move_keys(key, to)
            with contextlib.suppress(LockUnavailable):  # it is freed as soon as that is possible
                holder.release()
        cluster.move_slot(key, to)
        assert waiting()


class TestSeveralSlots(TestCluster):
    """So it is for who waits for a multilock whose names are on all three nodes."""

    @pytest.fixture
    def names(self, cluster, unique):
        """A name on each node, in the order in which their slots are taken."""
        names = (f"{unique}:{number}" for number in itertools.count())
        found = {}
        while len(found) < len(cluster.nodes):
            name = next(names)
            found.setdefault(cluster.owner(_key(name)), name)
        return sorted(found.values(), key=lambda name: hash_tag(_key(name).encode()))

    @pytest.fixture
    def held(self, cluster, users, names, spawn):
        """A held lock, a waiter, the lock's keys, and where needed a node that its slot can move to."""
        one, other = users
        holder = one.multilock(names)
        assert holder.acquire()
        waiting = spawn(other.multilock(names).acquire, True, TEST_TIMEOUT)
        until_someone_waits(one, names[0])
        owner = cluster.owner(_key(names[0]))
        return holder, waiting, _key(names[0]), next(node for node in cluster.nodes if node is not owner)

    def test_everything_follows(self, cluster, held, names):
        """The holder's requests do, too."""
        holder, waiting, key, to = held
        cluster.move_slot(key, to)
        assert holder.owned()
        assert holder.extend() > 0
        holder.release()
        assert waiting(WAKE)

    @pytest.mark.parametrize("victim", range(3))
    def test_a_master_is_gone(self, cluster, held, names, victim):
        """Whichever master is gone for a while, who waits has them all when it is back."""
        holder, waiting, *_ = held
        cluster.owner(_key(names[victim])).kill()
        with contextlib.suppress(LockError):  # what it had there is forgotten
            holder.release()
        cluster.heal()
        assert waiting()


class TestHalfMoved:
    """A slot is on its way, and some of a lock's keys are nowhere: the node says TRYAGAIN."""

    @pytest.fixture
    def cluster(self, cluster):
        yield cluster
        cluster.heal()

    @pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
    def test_half_moved(self, cluster, new_client, unique, spawn, several):
        """Who can wait does until it has moved; who can't is told."""
        client, key = new_client(RedisBackend, cluster.url), _key(unique)
        make = (lambda: client.multilock([unique, unique + "}"])) if several else (lambda: client.lock(unique))
        to = next(node for node in cluster.nodes if node is not cluster.owner(key))
        with cluster.migrating(key, to):
            with pytest.raises(LockUnavailable, match=r"TRYAGAIN|[Mm]ultiple keys"):
                make().acquire(False)
            before = _times_tryagain(to)
            waiting = spawn(make().acquire, True, TEST_TIMEOUT)
            assert eventually(lambda: _times_tryagain(to) > before + 1)
        assert waiting()


def _key(name):
    return f"redlock:{{{name}}}"


def _times_tryagain(node):
    with node.client() as client:
        return client.info("errorstats").get("errorstat_TRYAGAIN", {}).get("count", 0)


@pytest.mark.parametrize(
    ("text", "move"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirection(False, 3999, "127.0.0.1", 6381)),
        ("ASK 3999 ::1:6381", Redirection(True, 3999, "::1", 6381)),
        ("3999 127.0.0.1:6381", None),
        ("ERR 3999 127.0.0.1:6381", None),
    ],
)
def test_redirections(text, move):
    """Redirections as old versions of redis-py tell them: in the text of the error."""
    assert Redirection.read(Exception(text)) == move


class TestQuorum:
    """Nodes come and go while somebody waits."""

    @pytest.fixture
    def servers(self, own_redis):
        return [own_redis() for _ in range(3)]

    @pytest.fixture
    def users(self, servers, new_client):
        urls = [server.url for server in servers]
        return [new_client(RedlockBackend, urls, quarantine=False) for _ in range(2)]

    @pytest.fixture
    def held(self, users, unique, spawn):
        """A held lock, a waiter, the lock's keys, and where needed a node that its slot can move to."""
        one, other = users
        holder = one.lock(unique)
        assert holder.acquire()
        waiting = spawn(other.lock(unique).acquire, True, TEST_TIMEOUT)
        until_someone_waits(one, unique)
        return holder, waiting

    def test_woken(self, held):
        """The release wakes who waits."""
        holder, waiting = held
        holder.release()
        assert waiting(WAKE)

    @pytest.mark.parametrize("victim", range(3))
    @pytest.mark.parametrize("way", ["kill", "pause"])
    def test_a_node_is_gone(self, servers, held, victim, way):
        """Whichever node is gone when the lock is released, who waits has it: all waiters wait on one of them."""
        holder, waiting = held
        getattr(servers[victim], way)()
        holder.release()
        assert waiting()
        if way == "pause":
            servers[victim].resume()

    def test_deadline(self, servers, held, users, unique, spawn):
        """With a node that hangs it comes back in time, without the lock."""
        servers[0].pause()
        began = time.monotonic()
        waiting = spawn(users[0].lock(unique).acquire, True, 1)
        assert waiting() is False
        assert time.monotonic() - began >= 1
        servers[0].resume()
        held[0].release()
        assert held[1]()

    def test_no_majority(self, servers, held):
        """Without a majority who waits is told."""
        for server in servers[:2]:
            server.kill()
        with pytest.raises(LockUnavailable):
            held[1]()
