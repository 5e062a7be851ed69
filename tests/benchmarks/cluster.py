"""Acquire and release on a Redis Cluster, compared with one Redis."""

import contextlib
import itertools
from collections.abc import Callable, Iterator

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks import peers
from tests.benchmarks.measure import Row, Side, Spent, one_core, spent, spent_ratio
from tests.support.cluster import Cluster

NAMES, CALLS, ROUNDS = 100, 1000, 20
CLUSTER, SINGLE = "Cluster", "one Redis"


def cluster() -> Iterator[Row]:
    """Acquire and release on a Cluster of three masters beside one Redis: CPU of the servers, time."""
    with one_core(), contextlib.ExitStack() as stack:
        with one_core(another=True):
            masters, single = stack.enter_context(Cluster()), stack.enter_context(RedisServer())
        admins = {CLUSTER: [node.client() for node in masters.nodes], SINGLE: [single.client()]}
        backends = {CLUSTER: RedisBackend(masters.url), SINGLE: RedisBackend(single.url)}
        contests: dict[str, dict[str, Side]] = {
            "with backend.lock()": {where: _pair(backend) for where, backend in backends.items()},
            "redis-py by hand": {
                CLUSTER: peers.hand_written(masters.client()),
                SINGLE: peers.hand_written(single.client()),
            },
        }
        for who, sides in contests.items():
            results: dict[str, list[Spent]] = {where: [] for where in sides}
            for number in range(ROUNDS + 1):
                for where, pair in sides.items():
                    outcome = spent(pair, CALLS, admins[where])
                    if number:  # the first is for warming up
                        results[where].append(outcome)
            for field, what in (("server", "server CPU a pair"), ("clock", "a pair")):
                ratio, note = spent_ratio(results, CLUSTER, SINGLE, field)
                yield Row(f"{what}, {who}, {CLUSTER} / {SINGLE}", ratio, note=note)
        for backend in backends.values():
            backend.close()


def _pair(backend: RedisBackend) -> Callable[[], None]:
    names = itertools.cycle(f"cluster:{number}" for number in range(NAMES))

    def pair() -> None:
        with backend.lock(next(names)):
            pass

    return pair
