"""The costs of an acquire and release for the server and the network, measured by the server."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks import peers
from tests.benchmarks.measure import Row, contest, one_core, spent

ROUNDS, PAIRS = 20, 50
CPU_PAIRS = 500  # the server counts its CPU in µs, that of INFO too
BASE = "redis-py by hand"


class Cost(NamedTuple):
    """The cost of a pair: the server's CPU in seconds, and bytes on the wire."""

    cpu: float
    bytes: float


def costs() -> Iterator[Row]:
    """Server CPU and bytes on the wire for a pair, compared with hand-written redis-py."""
    with one_core(), RedisServer() as server, server.client() as admin, server.client() as client:
        plain, guarded = (RedisBackend(server.url, quarantine=on, max_ttl=60) for on in (False, True))
        guarded.arm()
        sides = {
            BASE: peers.hand_written(client),
            "backend.lock()": _pair(plain),
            "... with quarantine": _pair(guarded),
            "... with fencing": _pair(plain, fencing=True),
        }
        results = contest(sides, ROUNDS, lambda pair: _cost(admin, pair))
        for backend in (plain, guarded):
            backend.close()
    for field, what, unit in (("cpu", "server CPU", "µs"), ("bytes", "bytes on the wire", "bytes")):
        for name in list(sides)[1:]:
            yield results.row(f"{what} a pair, ", name, BASE, field, unit=unit)


def _pair(backend: RedisBackend, **options: Any) -> Callable[[], None]:
    def pair() -> None:
        with backend.lock("costs", **options):
            pass

    return pair


def _cost(admin: Any, pair: Callable[[], None]) -> Cost:
    def total() -> int:
        stats = admin.info("stats")
        return int(stats["total_net_input_bytes"] + stats["total_net_output_bytes"])

    cpu = spent(pair, CPU_PAIRS, [admin]).server
    before = total()
    own = total() - before  # of the question itself
    before = total()
    for _ in range(PAIRS):
        pair()
    return Cost(cpu, (total() - before - own) / PAIRS)
