"""The cost of renewing 1,000 locks for client and server, compared with a hand-written pipeline."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import redis

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Row, one_core, server_cpu

LOCKS, TTL, SECONDS, ROUNDS = 1000, 3, 4.0, 4
RENEW = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"


class Spent(NamedTuple):
    """Seconds of CPU for one renewal."""

    client: float
    server: float


def _spent(admin: Any, work: Callable[[], object]) -> Spent:
    """Run ``work``, which renews for `SECONDS`. The number of renewals is the server's number of PEXPIRE."""
    renewals, server, client = _extended(admin), server_cpu(admin), time.process_time()
    work()
    client, server = time.process_time() - client, server_cpu(admin) - server
    renewals = _extended(admin) - renewals
    return Spent(client / renewals, server / renewals)


def _extended(admin: Any) -> int:
    return int(admin.info("commandstats").get("cmdstat_pexpire", {"calls": 0})["calls"])


def _by_hand(client: redis.Redis) -> Callable[[], None]:
    """Acquire the locks. Returns the function that renews them."""
    sha, held = client.script_load(RENEW), {f"bench:{number}": os.urandom(16).hex() for number in range(LOCKS)}
    with client.pipeline(transaction=False) as pipeline:  # one by one, the first may end before the last begins
        for name, token in held.items():
            pipeline.set(name, token, px=TTL * 1000)
        pipeline.execute()

    def renew() -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            pipeline = client.pipeline(transaction=False)
            for name, token in held.items():
                pipeline.evalsha(sha, 1, name, token, TTL * 1000)
            if not all(pipeline.execute()):
                raise RuntimeError("lost")
            time.sleep(TTL / 3)

    return renew


def renewals() -> Iterator[Row]:
    """1,000 locks with a ttl of 3 s: CPU of client and server for a renewal, beside a pipeline by hand."""
    results: dict[bool, list[Spent]] = {True: [], False: []}
    with one_core(), RedisServer() as server, server.client() as admin, server.client() as client:
        for _ in range(ROUNDS):
            backend = RedisBackend(server.url, ttl=TTL)
            locks = [backend.lock(f"renewals:{number}") for number in range(LOCKS)]
            for lock in locks:
                lock.acquire()
            results[True].append(_spent(admin, lambda: time.sleep(SECONDS)))
            for lock in locks:
                lock.release()  # raises if it was lost
            backend.close()
            results[False].append(_spent(admin, _by_hand(client)))
    for index, field in enumerate(Spent._fields):
        ours, base = ([spent[index] for spent in results[side]] for side in (True, False))
        ratio = statistics.median(one / other for one, other in zip(ours, base, strict=True))
        note = f"{statistics.median(ours) * 1e6:.1f} µs, {statistics.median(base) * 1e6:.1f} µs"
        yield Row(f"CPU of the {field} for a renewal, {LOCKS} locks / a pipeline by hand", ratio, note=note)
