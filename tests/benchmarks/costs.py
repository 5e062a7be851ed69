"""The costs of an acquire and release for the server and the network, measured by the server."""

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks import peers
from tests.benchmarks.measure import Row, one_core, server_cpu

ROUNDS, PAIRS = 20, 50
CPU_PAIRS = 500  # the server counts its CPU in µs, that of INFO too
BASE = "redis-py by hand"
# Commands that the clients send. The time of a script, and of EXEC, includes that of the commands in it.
SENT = {BASE: ("set", "evalsha")}
OURS = ("multi", "exec", "evalsha")


def costs() -> Iterator[Row]:
    """Server CPU, time in commands and bytes on the wire for a pair, compared with hand-written redis-py."""
    with one_core(), RedisServer() as server, server.client() as admin, server.client() as client:
        plain, guarded = (RedisBackend(server.url, quarantine=on, max_ttl=60) for on in (False, True))
        guarded.arm()
        sides: dict[str, Callable[[], None]] = {
            BASE: peers.hand_written(client),
            "backend.lock()": _pair(plain),
            "... with quarantine": _pair(guarded),
            "... with fencing": _pair(plain, fencing=True),
        }
        micros: dict[str, list[float]] = {name: [] for name in sides}
        sent: dict[str, list[float]] = {name: [] for name in sides}
        cpu: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, pair in sides.items():
                cpu[name].append(_cpu(admin, pair))
                micros[name].append(_micros(admin, pair, SENT.get(name, OURS)))
                sent[name].append(_bytes(admin, pair))
        for backend in (plain, guarded):
            backend.close()
    for what, unit, values in (
        ("server CPU", "µs", cpu),
        ("time in commands", "µs", micros),
        ("bytes on the wire", "bytes", sent),
    ):
        for name in list(sides)[1:]:
            ratio = statistics.median(one / other for one, other in zip(values[name], values[BASE], strict=True))
            note = f"{statistics.median(values[name]):.1f} {unit}, {statistics.median(values[BASE]):.1f} {unit}"
            yield Row(f"{what} a pair, {name} / {BASE}", ratio, note=note)


def _pair(backend: RedisBackend, **options: Any) -> Callable[[], None]:
    def pair() -> None:
        with backend.lock("costs", **options):
            pass

    return pair


def _cpu(admin: Any, pair: Callable[[], None]) -> float:
    before = server_cpu(admin)
    for _ in range(CPU_PAIRS):
        pair()
    return (server_cpu(admin) - before) / CPU_PAIRS * 1e6


def _micros(admin: Any, pair: Callable[[], None], commands: tuple[str, ...]) -> float:
    pair()  # connections and scripts
    admin.config_resetstat()
    for _ in range(PAIRS):
        pair()
    stats = admin.info("commandstats")
    return sum(float(stats.get(f"cmdstat_{command}", {"usec": 0})["usec"]) for command in commands) / PAIRS


def _bytes(admin: Any, pair: Callable[[], None]) -> float:
    def total() -> int:
        stats = admin.info("stats")
        return int(stats["total_net_input_bytes"] + stats["total_net_output_bytes"])

    before = total()
    own = total() - before  # of the question itself
    before = total()
    for _ in range(PAIRS):
        pair()
    return (total() - before - own) / PAIRS
