"""The queue of waiters in ZooKeeper, and znodes that another program has created among the locks."""

import itertools
import math
import time

import pytest

from django_redlock.errors import LockNotAcquired
from tests.support.processes import Worker
from tests.support.service import poll
from tests.support.zookeeper import ZooKeeper

from .tools import PATIENCE, until_in_line, wait


def test_a_waiter_watches_only_its_predecessor(backend, witness, unique, pool):
    locks = [backend.lock(unique) for _ in range(4)]
    locks[0].acquire()
    waiting = []
    for number, lock in enumerate(locks[1:]):
        waiting.append(pool.submit(lock.acquire, True, PATIENCE))
        until_in_line(backend, unique, number + 2)
    parent, until = backend._recipe.path(unique), time.monotonic() + PATIENCE
    line = [f"{parent}/{child}" for child in backend._recipe.children(unique, until)]

    def watched():
        watchers = dict(backend._session.client._data_watchers)
        return {path: [watcher.__self__.path for watcher in tuple(each)] for path, each in watchers.items()}

    expected = {front: [behind] for front, behind in itertools.pairwise(line)}
    poll(lambda: watched() == expected, timeout=PATIENCE, what="three watches")  # a renewal ends one for a moment
    for lock, each in zip(locks, [*waiting, None], strict=True):
        lock.release()
        assert each is None or each.result(PATIENCE)


def test_a_waiter_that_is_killed(zookeeper, backend, unique, start, pool):
    """When the process of a waiter is killed, its znode goes with the session, and the waiter behind it is served."""
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


def test_a_try_that_does_not_wait_leaves_no_trace(backend, other, witness, unique):
    """acquire(False) on a held lock creates no znode."""
    with other.lock(unique):
        parent = backend._recipe.path(unique)
        before = witness.get(parent)[1].cversion
        assert not backend.lock(unique).acquire(False)
        assert witness.get(parent)[1].cversion == before


class Tidy(ZooKeeper):
    """A server that removes empty containers every 0.1 s instead of every minute."""

    def command(self):
        java, *rest = super().command()
        return [java, "-Dznode.container.checkIntervalMs=100", *rest]


def test_nothing_is_left_of_a_name(start, connected, unique):
    """The server removes the container of an unused name, which is created again when needed."""
    backend = connected(start(Tidy()).hosts)
    until = time.monotonic() + PATIENCE
    for _ in range(2):
        with backend.lock(unique):
            assert list(backend.names()) == [unique]
        poll(lambda: not list(backend.names()), timeout=PATIENCE, what="the removal of the container")
    assert backend._recipe.ask("exists", backend._root, until=until)


@pytest.mark.parametrize("name", [".", "..", "a/b", "/", "zookeeper", "%2E"])
def test_names_that_are_no_paths(backend, name):
    """Dots, slashes and ZooKeeper's own name are valid lock names."""
    with backend.lock(name):
        assert name in [held.name for held in backend.held()]
        assert backend.describe(name) is not None


def test_chroot(zookeeper, connected, witness, unique):
    """All znodes are under the chroot, which is created if needed."""
    backend = connected(f"{zookeeper.hosts}/{unique}/deep", key_prefix="my.locks")
    with backend.lock("x"):
        assert witness.get_children(f"/{unique}/deep/my%2Elocks") == ["x"]


def test_the_token_stays_secret(backend, witness, unique):
    """The token is in neither the name nor the data of the znode."""
    with backend.lock(unique, fencing=True) as lock:
        path = backend._recipe.path(unique)
        (child,) = witness.get_children(path)
        assert lock.token not in child + witness.get(f"{path}/{child}")[0].decode()


DEEP = b"[" * 5000 + b"]" * 5000
DATA = [
    b"nan/1/1.000 {}",
    b"inf/1/1.000 {}",
    b"1.000/inf/1.000 {}",
    b"1.000/1/nan {}",
    b"30.000/0/0.000 " + DEEP,
    b'30.000/0/0.000 {"label":"\\udcff","since":NaN}',
    DEEP,
    b"x" * 500_000,
    b"",
]


@pytest.mark.parametrize("data", DATA, ids=lambda data: repr(data[:20]))
def test_unreadable_data(backend, witness, unique, data):
    """Whatever the data of the holder's znode, the lock is listed as one row and named in refusals."""
    path = f"{backend._recipe.root}/{unique}"
    witness.create(f"{path}/0-", data, ephemeral=True, sequence=True, makepath=True)
    (held,) = backend.held(unique)
    assert held.remaining is None or math.isfinite(held.remaining)
    assert len(str(held).encode()) < 5000
    with pytest.raises(LockNotAcquired) as refused, backend.lock(unique, blocking=False):
        raise AssertionError("granted")
    assert len(str(refused.value).encode()) < 1000


@pytest.mark.parametrize("child", ["notes", "read-me", "-", "lock-1x"])
def test_a_znode_without_a_sequence_number(backend, witness, unique, child):
    witness.create(f"{backend._recipe.root}/{unique}/{child}", b"x", makepath=True)
    with backend.lock(unique, blocking_timeout=PATIENCE) as lock:
        assert lock.owned()
    assert backend.describe(unique) is None
