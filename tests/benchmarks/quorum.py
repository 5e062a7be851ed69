"""Five independent nodes: healthy, one killed, two hung, three hung."""

import contextlib
import statistics
import time
from collections.abc import Iterator

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockError, LockUnavailable
from testproject.redis_server import RedisServer
from tests.benchmarks import peers
from tests.benchmarks.measure import Row, contest, one_core, timed
from tests.support.group import Group
from tests.support.service import poll

NODES, ROUNDS, CALLS = 5, 8, 100


def _group() -> Group:
    return Group(RedisServer() for _ in range(NODES))


def quorum() -> Iterator[Row]:
    """Acquire and release on five healthy nodes, on another core than the client, and all on one core."""
    yield from _healthy("nodes on another core", another=True, bar=2.0)
    yield from _healthy("nodes and client on one core", another=False, bar=None)


def _healthy(where: str, *, another: bool, bar: float | None) -> Iterator[Row]:
    with one_core(), contextlib.ExitStack() as stack:
        with one_core(another):
            group = stack.enter_context(_group())
        backend = RedlockBackend([server.url for server in group.servers])
        backend.arm()
        base = f"poll over bare sockets, {where}"

        def ours() -> None:
            with backend.lock("five"):
                pass

        polled = peers.polled([server.port for server in group.servers])
        results = contest({base: polled, "RedlockBackend": ours}, 40, lambda pair: timed(pair, 30))
        backend.close()
    yield results.row("", "RedlockBackend", base, "p50", bar)


class Tries:
    """Acquires and releases that are counted when they succeed."""

    def __init__(self, backend: RedlockBackend) -> None:
        self.backend, self.made, self.got = backend, 0, 0

    def __call__(self) -> None:
        self.made += 1
        with contextlib.suppress(LockError), self.backend.lock("faults", blocking=False):
            self.got += 1

    def p50(self) -> float:
        """The p50 of several calls, the first of which detects the failure."""
        return timed(self, CALLS).p50


def _left_behind(group: Group) -> int:
    """Return the locks without a holder, once all nodes have processed the requests in their sockets."""

    def left() -> int:
        return sum(len(list(client.scan_iter("redlock:{*}"))) for client in clients)

    clients = [server.client() for server in group.servers]
    with contextlib.suppress(TimeoutError):
        poll(lambda: left() == 0, timeout=5, what="nodes without locks")
    return left()


def quorum_faults() -> Iterator[Row]:
    """One of five killed, two hung, three hung: success, p50 beside healthy, time to refuse."""
    ratios: dict[str, list[float]] = {"one killed": [], "two hung": []}
    refused: list[float] = []
    with one_core(), _group() as group:
        backend = RedlockBackend([server.url for server in group.servers])
        backend.arm()
        tries = Tries(backend)
        healthy, left = tries.p50(), 0
        for number in range(ROUNDS):
            one, two, three = (group.servers[(number + offset) % NODES] for offset in range(3))
            healthy = tries.p50()
            one.kill()
            ratios["one killed"].append(tries.p50() / healthy)
            one.start()
            backend.arm()
            time.sleep(1.1)  # until it is tried again
            healthy = tries.p50()
            for server in (one, two):
                server.pause()
            ratios["two hung"].append(tries.p50() / healthy)
            three.pause()
            refused += [_refusal(backend) for _ in range(3)]
            for server in (one, two, three):
                server.resume()
            left += _left_behind(group)
            time.sleep(1.1)
        backend.close()
    for what, found in ratios.items():
        yield Row(f"p50, {what} / healthy", statistics.median(found), 1.3)
    yield Row("granted, one killed or two hung", tries.got / tries.made, 1.0, "", least=True, note=f"of {tries.made}")
    yield Row("left behind on the nodes", left, 0, "")
    yield Row("refusal, three hung, longest / node timeout", max(refused) / backend.node_timeout, 2.5)


def _refusal(backend: RedlockBackend) -> float:
    start = time.perf_counter()
    try:
        backend.lock("refused", blocking=False).acquire(blocking=False)
    except LockUnavailable:
        return time.perf_counter() - start
    raise AssertionError("granted by a minority")
