"""ZooKeeper: lines of znodes, and what becomes of locks when processes, servers, networks and sessions end."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from django_redlock.backends.zookeeper import ZooKeeperBackend
from django_redlock.errors import LockLost, LockNotAcquired, LockUnavailable
from tests.backends.zookeeper_workers import hold, wait
from tests.support.processes import Worker
from tests.support.proxy import Proxy
from tests.support.service import poll
from tests.support.zookeeper import ZooKeeper

PATIENCE = 20
CONTAINER_OWNER = -(2**63)  # what a container has in place of an ephemeral znode's session


@pytest.fixture
def connected():
    """`connected(hosts, **options)`: a backend that is closed in the end."""
    backends = []

    def connect(hosts, **options):
        options = {"session_timeout": 10, "node_timeout": 5} | options
        backends.append(ZooKeeperBackend(hosts, **options))
        return backends[-1]

    yield connect
    for backend in backends:
        if backend._session is not None:
            backend._session.stop(5)


@pytest.fixture
def backend(connected, zookeeper):
    return connected(zookeeper.hosts, session_timeout=30)


@pytest.fixture
def other(connected, zookeeper):
    return connected(zookeeper.hosts)


@pytest.fixture
def own(start):
    """A server to kill and pause."""
    return start(ZooKeeper())


@pytest.fixture
def witness(zookeeper):
    client = KazooClient(zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def pool():
    with ThreadPoolExecutor() as pool:
        yield pool


def paused(server):
    """SIGSTOP, and wait until each of its threads has stopped."""
    server.pause()
    threads = Path(f"/proc/{server.pid}/task").glob("*/stat")
    for stat in threads:
        poll(
            lambda stat=stat: stat.read_text().rpartition(")")[2].split()[0] == "T", timeout=PATIENCE, what="the pause"
        )


def in_line(backend, name):
    held = backend.describe(name)
    return 0 if held is None else 1 + held.waiters


def until_in_line(backend, name, count):
    poll(lambda: in_line(backend, name) == count, timeout=PATIENCE, what=f"{count} in line")


# ── the line ──────────────────────────────────────────────────────────────────────────────────


def test_waiters_are_served_in_order_of_arrival(backend, zookeeper, connected, unique, pool):
    """The lock goes from hand to hand in the order in which they came, whichever process they are in."""
    order, first = [], backend.lock(unique)
    first.acquire()

    def take(number, user):
        with user.lock(unique):
            order.append(number)

    users = [backend, connected(zookeeper.hosts)] * 3
    waiting = []
    for number, user in enumerate(users):
        waiting.append(pool.submit(take, number, user))
        until_in_line(backend, unique, number + 2)
    first.release()
    for each in waiting:
        each.result(PATIENCE)
    assert order == list(range(6))


def test_everybody_watches_the_one_in_front_only(backend, witness, unique, pool):
    """No herd: each waiter has a watch on the znode before its own, and on no other."""
    locks = [backend.lock(unique) for _ in range(4)]
    locks[0].acquire()
    waiting = []
    for number, lock in enumerate(locks[1:]):
        waiting.append(pool.submit(lock.acquire, True, PATIENCE))
        until_in_line(backend, unique, number + 2)
    parent, until = backend._recipe.path(unique), time.monotonic() + PATIENCE
    line = [f"{parent}/{child}" for child in backend._recipe.standing(unique, until)]
    poll(lambda: len(backend._session.client._data_watchers) == 3, timeout=PATIENCE, what="three watches")
    watched = {
        path: [watcher.__self__.path for watcher in watchers]
        for path, watchers in backend._session.client._data_watchers.items()
    }
    assert watched == {front: [behind] for front, behind in itertools.pairwise(line)}
    for lock, each in zip(locks, [*waiting, None], strict=True):
        lock.release()
        assert each is None or each.result(PATIENCE)


def test_one_in_the_middle_gives_up(backend, other, unique, pool):
    """Who waits behind one that gives up or dies waits on, behind the next one, and is served in its turn."""
    first, last = backend.lock(unique), other.lock(unique)
    first.acquire()
    middle = pool.submit(backend.lock(unique).acquire, True, 0.5)
    until_in_line(backend, unique, 2)
    waiting = pool.submit(last.acquire, True, PATIENCE)
    until_in_line(backend, unique, 3)
    assert middle.result(PATIENCE) is False
    until_in_line(backend, unique, 2)
    assert not waiting.done()
    assert last.token is None
    first.release()
    assert waiting.result(PATIENCE) is True


def test_a_waiter_that_is_killed(zookeeper, backend, unique, start, pool):
    """A waiter's process is killed: its place goes with its session, and those behind it are served."""
    first = backend.lock(unique)
    first.acquire()
    worker = start(Worker(wait, zookeeper.hosts, unique))
    worker.expect("waiting")
    until_in_line(backend, unique, 2)
    behind = pool.submit(backend.lock(unique).acquire, True, PATIENCE)
    until_in_line(backend, unique, 3)
    worker.kill()
    first.release()
    assert behind.result(PATIENCE) is True


def test_who_gave_up_leaves_no_watch(backend, other, unique):
    """A watch that nobody waits for any more is forgotten, however often one tries."""
    with other.lock(unique):
        for _ in range(5):
            assert not backend.lock(unique).acquire(timeout=0.05)
        assert not any(backend._session.client._data_watchers.values())


def test_a_try_that_does_not_wait_leaves_no_trace(backend, other, witness, unique):
    """acquire(False) on a lock that is held makes no znode."""
    with other.lock(unique):
        parent = backend._recipe.path(unique)
        before = witness.get(parent)[1].cversion
        assert not backend.lock(unique).acquire(False)
        assert witness.get(parent)[1].cversion == before


def test_fencing_token(backend, witness, unique):
    """It is the transaction that made the znode: it grows over all names and clients."""
    with backend.lock(unique) as lock:
        path = backend._recipe.path(unique)
        (child,) = witness.get_children(path)
        assert lock.fencing_token == witness.exists(f"{path}/{child}").czxid
        with backend.lock(unique + "another") as later:
            assert later.fencing_token > lock.fencing_token


class Tidy(ZooKeeper):
    """Looks for containers to remove every 0.1 s, not every minute."""

    def command(self):
        java, *rest = super().command()
        return [java, "-Dznode.container.checkIntervalMs=100", *rest]


def test_nothing_is_left_of_a_name(start, connected, unique):
    """The znode of a name is a container: the server removes it when nobody is in line; then it is made again."""
    backend = connected(start(Tidy()).hosts)
    until = time.monotonic() + PATIENCE
    for _ in range(2):
        with backend.lock(unique):
            assert list(backend.names()) == [unique]
        poll(lambda: not list(backend.names()), timeout=PATIENCE, what="the removal of the container")
    assert backend._recipe.ask("exists", backend._root, until=until)


def test_the_token_stays_secret(backend, witness, unique):
    """Neither the znode's name nor its data gives the token away."""
    with backend.lock(unique) as lock:
        path = backend._recipe.path(unique)
        (child,) = witness.get_children(path)
        assert lock.token not in child + witness.get(f"{path}/{child}")[0].decode()


@pytest.mark.parametrize("name", [".", "..", "a/b", "/", "zookeeper", "%2E"])
def test_names_that_are_no_paths(backend, name):
    """Dots, slashes and ZooKeeper's own name are names like any other."""
    with backend.lock(name):
        assert name in [held.name for held in backend.held()]
        assert backend.describe(name) is not None


def test_chroot(zookeeper, connected, witness, unique):
    """All znodes are under the chroot, which need not exist."""
    backend = connected(f"{zookeeper.hosts}/{unique}/deep", key_prefix="my.locks")
    with backend.lock("x"):
        assert witness.get_children(f"/{unique}/deep/my%2Elocks") == ["x"]


def test_another_container(backend, unique):
    """What others have put there, and is no contender, is no lock."""
    until = time.monotonic() + PATIENCE
    with backend.lock(unique):
        pass
    backend._recipe.ask("create", f"{backend._recipe.path(unique)}/note", b"", until=until)
    assert backend.describe(unique) is None
    assert backend.lock(unique).acquire(False)


# ── leases ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("asked", "granted"), [(100, 60), (10, 10), (0.01, 0.4)])
def test_the_granted_session_timeout_counts(zookeeper, connected, unique, asked, granted):
    """A lease lasts for half of the session timeout that the server has granted, whatever was asked for."""
    backend = connected(zookeeper.hosts, session_timeout=asked, ttl=300)
    lock = backend.lock(unique, auto_renew=False)
    assert lock.acquire()
    assert granted * 0.3 < lock.remaining < granted * 0.5


def test_a_forgotten_handle(backend, other, unique):
    """A handle that is garbage doesn't keep the lock, though the session lives on."""
    lock = backend.lock(unique, ttl=0.5)
    lock.acquire()
    del lock
    gc.collect()
    assert other.lock(unique).acquire(timeout=PATIENCE)


def test_close_keeps_what_is_held(backend, other, unique):
    """close() ends the session only when no lock would end with it."""
    with backend.lock(unique) as lock:
        backend.close()
        assert not other.lock(unique).acquire(False)
        lock.extend()
    session = backend._session
    backend.close()
    assert not session.connected
    with backend.lock(unique):
        pass


def test_many_are_renewed_together(backend, unique):
    """extend_many writes all znodes before it waits, and tells the lost ones from the others."""
    locks = [backend.lock(f"{unique}:{number}", auto_renew=False) for number in range(20)]
    for lock in locks:
        lock.acquire()
    assert backend.force_release(locks[7].name)
    leases = [(lock._lease, 30) for lock in locks]
    outcomes = backend.drive(backend.rule.extend_many(locks[0]._primitive, leases))
    assert [number for number, outcome in enumerate(outcomes) if outcome is None] == [7]
    assert all(
        outcome.valid_until > lease.valid_until for outcome, (lease, _) in zip(outcomes, leases, strict=True) if outcome
    )


# ── the session ends ──────────────────────────────────────────────────────────────────────────


def test_session_expiry_is_told_at_once(zookeeper, backend, other, unique):
    """When the server ends the session every lock of it is lost at that moment, long before its lease ends."""
    told, left = threading.Event(), []

    def on_lost(lock):
        left.append(lock._lease.valid_until - time.monotonic())
        told.set()

    lock = backend.lock(unique, ttl=300, auto_renew=False, on_lost=on_lost)
    lock.acquire()
    assert not lock.lost
    zookeeper.expire(backend._session.client)
    assert told.wait(PATIENCE)
    assert left[0] > 0
    assert lock.lost
    with pytest.raises(LockLost):
        lock.check()
    following = other.lock(unique)
    assert following.acquire(timeout=PATIENCE)
    with pytest.raises(LockLost):
        lock.release()
    following.check()
    assert following.owned()


def test_a_new_session(zookeeper, backend, unique):
    """After that the same handle takes the lock in a new session."""
    lock = backend.lock(unique)
    lock.acquire()
    zookeeper.expire(backend._session.client)
    poll(lambda: lock.lost, timeout=PATIENCE, what="the loss")
    assert lock.acquire(timeout=PATIENCE)
    lock.check()
    lock.extend()
    lock.release()


def test_a_waiter_whose_session_ends(zookeeper, backend, other, unique, pool):
    """It joins the line again in its new session, at the end, and gets the lock."""
    first = other.lock(unique)
    first.acquire()
    waiting = pool.submit(backend.lock(unique).acquire, True, PATIENCE)
    until_in_line(other, unique, 2)
    zookeeper.expire(backend._session.client)
    until_in_line(other, unique, 2)
    first.release()
    assert waiting.result(PATIENCE) is True


def test_a_holder_that_is_killed(zookeeper, backend, unique, start):
    """kill -9: the servers end its session, and one who waits has the lock."""
    worker = start(Worker(hold, zookeeper.hosts, unique, 1))
    worker.expect("held")
    assert not backend.lock(unique).acquire(False)
    worker.kill()
    assert backend.lock(unique).acquire(timeout=PATIENCE)


def test_a_holder_that_is_paused(zookeeper, backend, unique, start):
    """SIGSTOP beyond the session: another has the lock. The first knows that it has lost it before it asks anybody."""
    worker = start(Worker(hold, zookeeper.hosts, unique, 1))
    worker.expect("held")
    worker.pause()
    following = backend.lock(unique)
    assert following.acquire(timeout=PATIENCE)
    worker.tell("look")
    worker.resume()
    assert worker.expect("looked") == {"lost": True, "released": False}
    following.check()
    assert following.owned()


# ── servers and networks fail ─────────────────────────────────────────────────────────────────


def test_a_server_that_is_killed(own, connected, unique):
    """kill -9 of the server: LockUnavailable, soon; the lease is lost at its end by our clock, without a server."""
    backend = connected(own.hosts, session_timeout=2, connect_timeout=0.5, node_timeout=0.5)
    told = threading.Event()
    lock = backend.lock(unique, on_lost=lambda _: told.set())
    lock.acquire()
    own.kill()
    with pytest.raises(LockUnavailable, match=own.hosts) as caught:
        backend.lock("another").acquire(timeout=5)
    assert list(caught.value.errors) == [own.hosts]
    for ask in (backend.held, lock.locked, functools.partial(backend.force_release, unique)):
        with pytest.raises(LockUnavailable):
            ask()
    assert told.wait(PATIENCE)
    assert lock.lost
    (row,) = backend.health()
    assert (row["ok"], row["node"]) == (False, own.hosts)
    own.start()
    poll(lambda: _granted(backend, "another"), timeout=PATIENCE, what="a server that came back")


def _granted(backend, name):
    try:
        return backend.lock(name).acquire(False)
    except LockUnavailable:
        return False


def test_a_server_that_is_restarted(own, connected, unique, pool):
    """A restart within the session loses nothing: the holder holds on, and who waits keeps waiting."""
    patient = functools.partial(connected, own.hosts, session_timeout=60, connect_timeout=30, node_timeout=1)
    backend, other = patient(), patient()
    lock = backend.lock(unique, ttl=30)
    lock.acquire()
    waiting = pool.submit(other.lock(unique).acquire, True, 60)
    until_in_line(backend, unique, 2)
    own.kill()
    own.start()
    lock.extend()
    lock.check()
    until_in_line(backend, unique, 2)
    assert not waiting.done()
    lock.release()
    assert waiting.result(PATIENCE) is True


def test_a_server_that_accepts_and_says_nothing(proxy, connected, unique):
    """A server that takes the connection, and is not ready for it, is tried again long before the session is over."""
    backend = connected(proxy.url, session_timeout=60, node_timeout=0.5, connect_timeout=0.2)
    proxy.drop()
    with pytest.raises(LockUnavailable):
        backend.lock(unique).acquire(False)
    poll(lambda: proxy.accepted > 1, timeout=PATIENCE, what="another try")
    proxy.restore()
    poll(lambda: _granted(backend, unique), timeout=PATIENCE, what="a connection")


def test_a_server_that_hangs(own, connected, unique):
    """SIGSTOP: every call ends; what it asked is done later, and taken back then: nobody's znode is left."""
    backend = connected(own.hosts, session_timeout=30, connect_timeout=1, node_timeout=0.5)
    with backend.lock(unique):
        pass
    paused(own)
    with pytest.raises(LockUnavailable):
        backend.lock(unique).acquire(False)
    with pytest.raises(LockUnavailable):
        backend.lock(unique).acquire(timeout=0.3)
    own.resume()
    poll(lambda: not backend._line and backend.describe(unique) is None, timeout=PATIENCE, what="an empty line")
    assert backend.lock(unique).acquire(False)


def test_never_connected(connected, unique, own):
    """No server at all: LockUnavailable after connect_timeout; once there is one, the same backend works."""
    own.kill()
    backend = connected(own.hosts, connect_timeout=0.2)
    for _ in range(2):
        with pytest.raises(LockUnavailable, match="not connected"):
            backend.lock(unique).acquire()
    own.start()
    poll(lambda: _granted(backend, unique), timeout=PATIENCE, what="the first connection")


@pytest.fixture
def proxy(start, zookeeper):
    return start(Proxy(zookeeper.hosts))


def test_a_lost_answer_to_create(proxy, connected, witness, unique):
    """The znode was made, and nobody was told: it is found again by its name, not made twice."""
    backend = connected(proxy.url)
    with backend.lock(unique):
        pass
    lost = proxy.lose_next_reply(unique.encode() + b"/")
    lock = backend.lock(unique)
    assert lock.acquire(timeout=PATIENCE)
    assert lost.is_set()
    path = backend._recipe.path(unique)
    assert len(witness.get_children(path)) == 1
    assert lock.fencing_token == witness.exists(f"{path}/{witness.get_children(path)[0]}").czxid
    lock.release()
    assert witness.get_children(path) == []


def test_a_lost_answer_and_no_time(proxy, connected, witness, unique):
    """The same to one who gives up: the znode is removed once the server can be asked again."""
    backend = connected(proxy.url, connect_timeout=1)
    with backend.lock(unique):
        pass
    lost = proxy.lose_next_reply(unique.encode() + b"/")
    proxy.refuse()
    with pytest.raises(LockUnavailable):
        backend.lock(unique).acquire(timeout=0.5)
    assert lost.is_set()
    assert len(witness.get_children(backend._recipe.path(unique))) == 1
    proxy.restore()
    poll(lambda: not witness.get_children(backend._recipe.path(unique)), timeout=PATIENCE, what="an empty line")


def test_a_lost_answer_to_release(proxy, connected, other, unique):
    """The release was carried out and nobody was told: LockUnavailable, and the lock is free."""
    backend = connected(proxy.url, connect_timeout=1)
    lock = backend.lock(unique)
    lock.acquire()
    lost = proxy.lose_next_reply(unique.encode())
    with pytest.raises(LockUnavailable):
        lock.release()
    assert lost.is_set()
    assert other.lock(unique).acquire(timeout=PATIENCE)


def test_a_short_interruption(proxy, connected, unique):
    """A connection that breaks is made again: nothing is lost but time."""
    backend = connected(proxy.url)
    told = []
    lock = backend.lock(unique, on_lost=told.append)
    lock.acquire()
    proxy.cut()
    lock.extend()
    lock.check()
    lock.release()
    assert told == []


def test_a_network_that_is_silent(proxy, connected, zookeeper, other, unique):
    """Cut off without notice the holder's lease ends before another gets the lock: never two at a time."""
    backend = connected(proxy.url, session_timeout=2, node_timeout=0.5)
    lost_at = []
    lock = backend.lock(unique, on_lost=lambda _: lost_at.append(time.monotonic()))
    lock.acquire()
    proxy.drop()
    assert other.lock(unique).acquire(timeout=PATIENCE)
    granted_at = time.monotonic()
    assert lock.lost
    poll(lambda: lost_at, timeout=PATIENCE, what="on_lost")
    assert lost_at[0] < granted_at


# ── asyncio, and without kazoo ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("times", [1, 2])
def test_cancelled_while_the_server_hangs(own, connected, unique, times):
    """A task that is cancelled, once or again, while its request is under way leaves no znode."""
    backend = connected(own.hosts, session_timeout=30, connect_timeout=2, node_timeout=1)
    with backend.lock(unique):
        pass

    async def scenario():
        task = asyncio.create_task(backend.lock(unique).aacquire())
        await asyncio.to_thread(poll, lambda: backend._line, timeout=PATIENCE, what="a request under way")
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        own.resume()
        await asyncio.wait([task])
        assert task.cancelled()

    paused(own)
    asyncio.run(scenario())
    poll(lambda: not backend._line and backend.describe(unique) is None, timeout=PATIENCE, what="an empty line")
    with pytest.raises(LockNotAcquired), backend.lock(unique), backend.lock(unique, blocking=False):
        pass


def test_waiting_tasks_take_no_thread(backend, other, unique):
    """More tasks wait than there are threads, and the event loop goes on."""

    async def scenario():
        order = []
        first = other.lock(unique)
        await first.aacquire()

        async def take(number):
            async with backend.lock(unique):
                order.append(number)

        tasks = [asyncio.create_task(take(number)) for number in range(40)]
        await asyncio.to_thread(until_in_line, other, unique, 41)
        assert not any(task.done() for task in tasks)
        await first.arelease()
        await asyncio.gather(*tasks)
        assert sorted(order) == list(range(40))

    asyncio.run(scenario())


WITHOUT_KAZOO = """
import sys
sys.modules["kazoo"] = None
from django_redlock.backends.zookeeper import ZooKeeperBackend
try:
    ZooKeeperBackend("127.0.0.1:2181")
except ModuleNotFoundError as error:
    print(error)
"""


def test_without_kazoo():
    """The module can be imported; making a backend says what to install."""
    told = subprocess.run([sys.executable, "-c", WITHOUT_KAZOO], capture_output=True, text=True, check=True, timeout=60)
    assert "django-redlock[zookeeper]" in told.stdout


@pytest.mark.parametrize(
    ("location", "options", "error"),
    [
        ("", {}, ValueError),
        ("/chroot", {}, ValueError),
        (["a:1"], {}, ValueError),
        ("a:1", {"session_timeout": 0}, ValueError),
        ("a:1", {"connect_timeout": "5"}, TypeError),
        ("a:1", {"node_timeout": -1}, ValueError),
    ],
    ids=repr,
)
def test_options_that_make_no_sense(location, options, error):
    """They are refused when the backend is made, by name."""
    with pytest.raises(error, match=next(iter(options), "LOCATION")):
        ZooKeeperBackend(location, **options)
