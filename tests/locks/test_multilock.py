"""Multilocks whose names are in one slot."""

from django_redlock.backends.redis import RedisBackend
from tests.support.locks import scripts_run


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
