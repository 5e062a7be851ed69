"""Multilocks of many processes that name the locks in any order."""

from contextlib import ExitStack

import pytest

from django_redlock.backends.redis import RedisBackend
from tests.locks.multilock_workers import take_some
from tests.support.locks import scripts_run
from tests.support.processes import ForkedWorker

PROCESSES, ROUNDS = 16, 20
NAMES = [f"account:{number}" for number in range(6)]


@pytest.mark.parametrize("kind", ["redis_server", "cluster"])
def test_random_orders_of_names(request, kind):
    """Sixteen processes that acquire some of six locks in random orders neither deadlock nor overlap."""
    url = request.getfixturevalue(kind).url
    with ExitStack() as ends:
        workers = [ends.enter_context(ForkedWorker(take_some, url, NAMES, ROUNDS)) for _ in range(PROCESSES)]
        for worker in workers:
            worker.expect("ready", 120)
        for worker in workers:
            worker.tell("go")
        told = [worker.result(100) for worker in workers]
    assert told == [{"alone": ROUNDS, "not alone": 0}] * PROCESSES
    assert RedisBackend(url, node_timeout=5).held("account:*") == []


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
