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
# Commands that the clients send. The time of a script, and of EXEC, includes that of the commands in it.
SENT = ("set", "evalsha")
OURS = ("multi", "exec", "evalsha")


class Cost(NamedTuple):
    """The cost of a pair: the server's CPU and its time in commands in seconds, and bytes on the wire."""

    cpu: float
    commands: float
    bytes: float


def costs() -> Iterator[Row]:
    """Server CPU, time in commands and bytes on the wire for a pair, compared with hand-written redis-py."""
    with one_core(), RedisServer() as server, server.client() as admin, server.client() as client:
        plain, guarded = (RedisBackend(server.url, quarantine=on, max_ttl=60) for on in (False, True))
        guarded.arm()
        sides = {
            BASE: (peers.hand_written(client), SENT),
            "backend.lock()": (_pair(plain), OURS),
            "... with quarantine": (_pair(guarded), OURS),
            "... with fencing": (_pair(plain, fencing=True), OURS),
        }
        results = contest(sides, ROUNDS, lambda side: _cost(admin, *side))
        for backend in (plain, guarded):
            backend.close()
    for field, what, unit in (
        ("cpu", "server CPU a pair, ", "µs"),
        ("commands", "time in commands a pair, ", "µs"),
        ("bytes", "bytes on the wire a pair, ", "bytes"),
    ):
        for name in list(sides)[1:]:
            yield results.row(what, name, BASE, field, unit=unit)


def _pair(backend: RedisBackend, **options: Any) -> Callable[[], None]:
    def pair() -> None:
        with backend.lock("costs", **options):
            pass

    return pair


def _cost(admin: Any, pair: Callable[[], None], commands: tuple[str, ...]) -> Cost:
    def total() -> int:
        stats = admin.info("stats")
        return int(stats["total_net_input_bytes"] + stats["total_net_output_bytes"])

    cpu = spent(pair, CPU_PAIRS, [admin]).server
    admin.config_resetstat()
    before = total()
    own = total() - before  # of the question itself
    before = total()
    for _ in range(PAIRS):
        pair()
    sent, stats = total() - before - own, admin.info("commandstats")
    micros = sum(float(stats.get(f"cmdstat_{command}", {"usec": 0})["usec"]) for command in commands)
    return Cost(cpu, micros / 1e6 / PAIRS, sent / PAIRS)
