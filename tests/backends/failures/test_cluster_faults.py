"""A failing server of a Redis Cluster does not affect locks on the other servers."""

import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from django_redlock.core.background.work import BATCH
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.cluster import ask
from tests.support.service import poll

NODE_TIMEOUT = 2
TTL = 6
KEY = "faults:{{{}}}"


@pytest.fixture
def cluster(cluster):
    """A Cluster whose healthy masters serve when others are down."""
    for node in cluster.nodes:
        ask(node, "CONFIG", "SET", "cluster-require-full-coverage", "no")
    yield cluster
    cluster.heal()
    for node in cluster.nodes:
        ask(node, "CONFIG", "SET", "cluster-require-full-coverage", "yes")


@pytest.fixture
def backend(cluster, backend_at):
    return backend_at(cluster.url, node_timeout=NODE_TIMEOUT, ttl=TTL, key_prefix="faults")


def test_a_hung_master_loses_its_own_locks_only(cluster, backend_at, unique):
    """A full batch of renewals for a hung master delays no renewal on the others, however long it is waited for."""
    backend = backend_at(cluster.url, node_timeout=TEST_TIMEOUT, key_prefix="faults")
    hung, *others = (
        [backend.lock(name, ttl=TTL, on_lost="warn") for name in names]
        for names in cluster.names_on_each(unique, BATCH + 1, KEY)
    )
    healthy = [lock for locks in others for lock in locks[:50]]
    assert all(lock.acquire(False) for lock in (*hung, *healthy))
    cluster.nodes[0].pause()
    ends = {lock: lock.hold.lease.valid_until + TTL for lock in healthy}  # two renewals at least
    poll(lambda: all(lock.lost for lock in hung), timeout=TEST_TIMEOUT, what="the end of the hung server's leases")
    poll(
        lambda: all(lock.lost or lock.hold.lease.valid_until > end for lock, end in ends.items()),
        timeout=TEST_TIMEOUT,
        what="the renewals on the other masters",
    )
    assert not [lock for lock in healthy if lock.lost]
    cluster.heal()


def test_locks_of_healthy_masters_while_one_hangs(cluster, backend, unique):
    (hung,), (one,), (other,) = cluster.names_on_each(unique, form=KEY)
    (_,), (stripes,), (_,) = cluster.names_on_each(unique, form="faults:{{{{{}}}#0}}")
    cluster.nodes[0].pause()
    for _ in range(2):
        with pytest.raises(LockUnavailable):
            backend.lock(hung).acquire(False)
        with backend.striped(stripes, 4), backend.multilock([one, other]):
            pass


def test_held_lists_what_answers(cluster, backend, unique, caplog):
    """held() lists the locks of the masters that reply, and the log names the master that does not."""
    names = [name for (name,) in cluster.names_on_each(unique, form=KEY)]
    with contextlib.ExitStack() as held:
        for name in names:
            held.enter_context(backend.lock(name, ttl=30))
        cluster.nodes[0].pause()
        where = f"127.0.0.1:{cluster.nodes[0].port}"
        with caplog.at_level(logging.WARNING, "django_redlock"):
            assert {each.name for each in backend.held()} == set(names[1:])
        assert where in caplog.text
        listing = backend.listing()
        assert not listing.complete
        assert list(listing.unanswered) == [where]
        cluster.nodes[0].resume()


def test_health_of_what_answers(cluster, backend):
    """health() reports other servers as healthy while one is down."""
    backend.health()
    cluster.nodes[0].kill()
    ports = {node.port: node is not cluster.nodes[0] for node in cluster.nodes}
    for _ in range(2):
        assert {int(row["node"].rpartition(":")[2]): row["ok"] for row in backend.health()} == ports


def test_nothing_can_be_listed(cluster, backend_at):
    """held() raises LockUnavailable when no master replies."""
    backend = backend_at(cluster.url, node_timeout=1)
    poll(lambda: backend.health()[0]["ok"], timeout=TEST_TIMEOUT, what="the slot map")
    for node in cluster.nodes:
        node.pause()
    with pytest.raises(LockUnavailable):
        backend.held()


@pytest.mark.parametrize("endpoint", ["unknown-endpoint", "hostname"])
def test_redirections_without_a_host(cluster, backend, unique, endpoint):
    """``MOVED n :port`` and ``MOVED n ?:port`` lead to the host that sent them."""
    ((name,), _, _), target = cluster.names_on_each(unique, form=KEY), cluster.nodes[1]
    key = f"faults:{{{name}}}"
    try:
        for node in cluster.nodes:
            ask(node, "CONFIG", "SET", "cluster-preferred-endpoint-type", endpoint)
    except redis.ResponseError:
        pytest.skip("this Redis has no preferred endpoint")
    try:
        with backend.lock(name):
            pass
        cluster.move_slot(key, target)
        with backend.lock(name):
            pass
    finally:
        for node in cluster.nodes:
            ask(node, "CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")
        cluster.move_slot(key, cluster.nodes[0])


KINDS = {
    "mutex": lambda backend, name: backend.lock(name),
    "fair": lambda backend, name: backend.lock(name, fair=True),
    "rlock": lambda backend, name: backend.rlock(name),
    "semaphore": lambda backend, name: backend.semaphore(name, limit=2),
    "read": lambda backend, name: backend.rwlock(name).read,
    "write": lambda backend, name: backend.rwlock(name).write,
    "striped": lambda backend, name: backend.striped(name, 2),
    "multilock": lambda backend, name: backend.multilock([f"{{{name}}}#1", f"{{{name}}}#2"]),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("moved", [False, True], ids=["there", "moved"])
def test_held_while_its_slot_moves(cluster, backend_at, unique, make, moved):
    """A lock is renewed while its slot migrates, whether its key has moved or not, and released when it has moved."""
    backend = backend_at(cluster.url, node_timeout=5, key_prefix="faults")
    lock = make(backend, unique)
    lock.acquire()
    lock.extend()
    key = next(each for node in cluster.nodes for each in ask(node, "KEYS", f"faults:*{unique}*"))
    source = cluster.owner(key)
    target = next(node for node in cluster.nodes if node is not source)
    with cluster.migrating(key, target), ThreadPoolExecutor(1) as pool:
        if moved:
            locks = [each for each in ask(source, "KEYS", f"faults:*{unique}*") if each.endswith("}")]
            ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", locks[0])
        lock.extend(ttl=20)
        moving = pool.submit(cluster.complete_move, key, target)
        lock.release()
        moving.result()
    assert not [each for node in cluster.nodes for each in ask(node, "KEYS", f"faults:*{unique}*}}")]


def test_released_after_the_move(cluster, backend_at, unique):
    """A release that a moving slot refuses for longer than a second raises LockUnavailable, and is repeated later."""
    backend = backend_at(cluster.url, node_timeout=5, key_prefix="faults")
    lock = backend.lock(unique)
    lock.acquire()
    key = f"faults:{{{unique}}}"
    target = next(node for node in cluster.nodes if node is not cluster.owner(key))
    with cluster.migrating(key, target):
        with pytest.raises(LockUnavailable):
            lock.release()
        cluster.complete_move(key, target)
        poll(lambda: not ask(target, "EXISTS", key), timeout=25, what="the release in the background")
