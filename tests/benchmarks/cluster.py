"""Acquire and release on a Redis Cluster, compared with one Redis."""

import contextlib
import itertools
from collections.abc import Callable, Iterator

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks import peers
from tests.benchmarks.measure import Row, contest, one_core, spent
from tests.support.cluster import Cluster

NAMES, CALLS, ROUNDS = 100, 1000, 20
CLUSTER, SINGLE = "Cluster", "one Redis"


def cluster() -> Iterator[Row]:
    """Acquire and release on a Cluster of three masters beside one Redis: CPU of the servers, time."""
    with one_core(), contextlib.ExitStack() as stack:
        with one_core(another=True):
            masters, single = stack.enter_context(Cluster()), stack.enter_context(RedisServer())
        of_masters, of_single = [node.client() for node in masters.nodes], [single.client()]
        backends = RedisBackend(masters.url), RedisBackend(single.url)
        for who, pairs in (
            ("with backend.lock()", map(_pair, backends)),
            ("redis-py by hand", map(peers.hand_written, (masters.client(), single.client()))),
        ):
            sides = dict(zip((CLUSTER, SINGLE), zip(pairs, (of_masters, of_single), strict=True), strict=True))
            results = contest(sides, ROUNDS, lambda side: spent(side[0], CALLS, side[1]))
            for field, what in (("server", "server CPU a pair"), ("clock", "a pair")):
                yield results.row(f"{what}, {who}, ", CLUSTER, SINGLE, field)
        for backend in backends:
            backend.close()


def _pair(backend: RedisBackend) -> Callable[[], None]:
    names = itertools.cycle(f"cluster:{number}" for number in range(NAMES))

    def pair() -> None:
        with backend.lock(next(names)):
            pass

    return pair
