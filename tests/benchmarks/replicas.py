"""A lock that a replica confirms, and the cost of the quarantine on the server."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redis_base import RedisBaseBackend
from django_redlock.backends.replica import ReplicaBackend
from testproject.redis_server import RedisServer
from tests.benchmarks import peers
from tests.benchmarks.measure import Row, interleaved, one_core
from tests.support.replicas import Replicated, replicate, wait_in_sync
from tests.support.service import poll

CALLS, ROUNDS = 200, 15


def _armed(group: Replicated, **options: object) -> ReplicaBackend:
    backend = ReplicaBackend(group.primary.url, min_replicas=1, **options)
    poll(lambda: "armed" in backend.arm().values(), timeout=10, what="an armed primary")
    return backend


def replica() -> Iterator[Row]:
    """Acquire and release with one replica, beside the published three round trips."""
    with one_core(), Replicated(1) as group, group.primary.client() as client:
        for replica in group.replicas:  # straight, not through what can cut it off: that is Python, too
            replicate(replica, group.primary.port)
        wait_in_sync(group.primary, group.replicas)
        backend = _armed(group)
        kept = backend.lock("kept")

        def new_handle() -> None:
            with backend.lock("new"):
                pass

        def same_handle() -> None:
            kept.acquire()
            kept.release()

        sides: dict[str, Callable[[], None]] = {
            "ROLE, EVAL, WAIT": peers.three_round_trips(client),
            "ReplicaBackend": new_handle,
            "ReplicaBackend, kept handle": same_handle,
        }
        rounds = interleaved(sides, calls=40)
        backend.close()
    yield from rounds.rows("ROLE, EVAL, WAIT", dict.fromkeys(list(sides)[1:], 0.6))


def quarantine() -> Iterator[Row]:
    """What the quarantine adds to an acquire and to a release, in µs of server time, with the caches to itself."""
    with RedisServer() as server:
        pair = [RedisBackend(server.url, quarantine=on, auto_renew=False, max_ttl=60) for on in (False, True)]
        pair[1].arm()
        yield from _cost("one node", server, pair, 20)  # beside SET NX alone
    with Replicated(1) as group:
        without = ReplicaBackend(group.primary.url, min_replicas=1, quarantine=False, auto_renew=False)
        yield from _cost("one replica", group.primary, [without, _armed(group, auto_renew=False)], 14)


def _cost(where: str, server: RedisServer, backends: list[RedisBaseBackend], bar: float) -> Iterator[Row]:
    """Return the difference between the second backend and the first, by round."""
    spent = [(_spent(backends[0], server), _spent(backends[1], server)) for _ in range(ROUNDS)]
    for index, (what, limit) in enumerate({"acquire": bar, "release": 1.0}.items()):
        more = statistics.median(with_[index] - without[index] for without, with_ in spent)
        note = " and ".join(
            f"{statistics.median(side[index] for side in column):.1f}" for column in zip(*spent, strict=True)
        )
        yield Row(f"quarantine's cost in {what}, {where}", more, limit, "µs", note=f"µs without, with: {note}")


def _spent(backend: RedisBaseBackend, server: RedisServer) -> tuple[float, float]:
    """Return the server time in µs of one acquire and of one release, by commandstats."""
    locks = [backend.lock(f"cost:{number}") for number in range(CALLS)]
    spent = []
    with server.client() as client:
        for verb in ("acquire", "release"):
            for lock in locks[:5]:  # scripts and connections
                getattr(lock, verb)()
            client.config_resetstat()
            for lock in locks[5:]:
                getattr(lock, verb)()
            stats = client.info("commandstats")  # a free lock is acquired without a script
            spent.append(stats.get("cmdstat_evalsha", stats.get("cmdstat_set"))["usec_per_call"])
    return spent[0], spent[1]
