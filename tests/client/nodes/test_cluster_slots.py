"""The slot map of a Redis Cluster, when some of the servers hang or have no map, and requests for one slot."""

import gc
import time
import weakref

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockUnavailable
from testproject.redis_server import RedisServer
from tests.support.cluster import OPTIONS, ask
from tests.support.locks import scripts_run
from tests.support.service import poll

NODE_TIMEOUT = 4  # seconds
SLOW = 6  # seconds that a busy machine may take for everything else


@pytest.fixture
def backend(cluster, backend_at):
    """A backend without a slot map, which asks the first node first."""
    return backend_at(cluster.url, node_timeout=NODE_TIMEOUT)


@pytest.fixture
def elsewhere(cluster, unique):
    """A name that the first node does not serve."""
    return cluster.names_on_each(unique)[1][0]


def test_one_node_hangs(cluster, backend, elsewhere):
    """When one node hangs another sends the slot map, and a handle without references is collected at once."""
    cluster.nodes[0].pause()
    lock = backend.lock(elsewhere)
    gc.disable()
    try:
        assert lock.acquire(False)
        dropped = weakref.ref(lock)
        del lock
        assert dropped() is None
    finally:
        gc.enable()


def test_all_nodes_hang(cluster, backend_at, unique):
    """When all nodes hang the request ends after one node timeout, however many names the nodes have."""
    hosts = cluster.url + "," + ",".join(f"localhost:{node.port}" for node in cluster.nodes)
    backend = backend_at(hosts, node_timeout=NODE_TIMEOUT)
    for node in cluster.nodes:
        node.pause()
    began = time.monotonic()
    with pytest.raises(LockUnavailable, match="no reply in time"):
        backend.lock(unique).acquire(False)
    assert time.monotonic() - began < 2 * NODE_TIMEOUT + SLOW


@pytest.mark.parametrize("args", [(), OPTIONS], ids=["plain", "alone"])
def test_a_node_outside_the_cluster(cluster, start, unique, args, backend_at):
    """A node outside the cluster is skipped, and named in the error if there is no other."""
    stranger = start(RedisServer(*args))
    outside = backend_at(f"redis+cluster://127.0.0.1:{stranger.port}", node_timeout=5)
    with pytest.raises(LockUnavailable, match=r"cluster support disabled|belongs to no cluster"):
        outside.lock(unique).acquire(False)
    hosts = cluster.url.removeprefix("redis+cluster://")
    both = backend_at(f"redis+cluster://127.0.0.1:{stranger.port},{hosts}", ttl=30, node_timeout=5)
    assert both.lock(unique).acquire(False)


def test_the_only_address_is_cut_off(cluster, backend_at, elsewhere):
    """A server that reports the Cluster as down names other servers, which are asked for the slot map."""
    seed, slot = cluster.nodes[0], 0
    ask(seed, "CLUSTER", "DELSLOTS", slot)
    try:
        poll(lambda: "cluster_state:fail" in ask(seed, "CLUSTER", "INFO"), timeout=20, what="a Cluster that is down")
        backend = backend_at(f"redis+cluster://127.0.0.1:{seed.port}", node_timeout=5)
        assert backend.lock(elsewhere).acquire(False)
    finally:
        ask(seed, "CLUSTER", "ADDSLOTS", slot)
        cluster.heal()


def test_in_one_slot(cluster):
    """Names with the same hash tag are acquired in one request, on a Cluster, too."""
    backend = RedisBackend(cluster.url, node_timeout=5)
    lock = backend.multilock(["{cart:7}b", "{cart:7}a"])
    with lock:  # slots and scripts are known
        pass
    costs = set()
    for _ in range(3):  # what earlier tests have left may send a request, too
        before = sum(map(scripts_run, cluster.nodes))
        lock.acquire()
        costs.add(sum(map(scripts_run, cluster.nodes)) - before)
        lock.release()
    assert min(costs) == 1
