"""The cost of renewing 1,000 locks for client and server, compared with a hand-written pipeline."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import redis

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Results, Row, Spent, one_core, spending

LOCKS, TTL, SECONDS, ROUNDS = 1000, 3, 4.0, 4
OURS, BASE = f"{LOCKS} locks", "a pipeline by hand"
RENEW = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"


def _spent(admin: Any, work: Callable[[], object]) -> Spent:
    """Run ``work``, which renews for `SECONDS`. The number of renewals is the server's number of PEXPIRE."""

    def extended() -> int:
        return int(admin.info("commandstats").get("cmdstat_pexpire", {"calls": 0})["calls"])

    before = extended()
    with spending([admin], lambda: extended() - before) as found:
        work()
    return found[0]


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
    results = Results({OURS: [], BASE: []})
    with one_core(), RedisServer() as server, server.client() as admin, server.client() as client:
        for _ in range(ROUNDS):
            backend = RedisBackend(server.url, ttl=TTL)
            locks = [backend.lock(f"renewals:{number}") for number in range(LOCKS)]
            for lock in locks:
                lock.acquire()
            results[OURS].append(_spent(admin, lambda: time.sleep(SECONDS)))
            for lock in locks:
                lock.release()  # raises if it was lost
            backend.close()
            results[BASE].append(_spent(admin, _by_hand(client)))
    for field in ("client", "server"):
        yield results.row(f"CPU of the {field} for a renewal, ", OURS, BASE, field)
