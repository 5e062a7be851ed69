"""The time from a release in one process to the acquire in the next, compared with RPUSH and BLPOP."""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import redis
import redis_lock

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Row, jain, one_core, server_cpu
from tests.benchmarks.peers import Wire
from tests.support.processes import Channel, Worker

ROUNDS, SECONDS, TIMEOUT = 15, 0.3, 60.0
OURS, BARE, CLIENT = "ours", "BLPOP ping-pong on bare sockets", "BLPOP ping-pong with redis-py"
PEER = "python-redis-lock"
SENT = ("blpop", "eval", "evalsha", "ping")  # by our clients; what a script calls has other names
TOKEN = "bench:token"
# Seconds: long enough for the others to be waiting when it is passed on. On one core the scheduler decides who runs
# first, the woken or the releasing one, and so what p50 comes to: many short rounds, and no rhythm that it could keep.
HOLD = 0.0003
# Where the bars apply. Bare sockets tell what redis-py costs, in which all the locks are written.
BASES = {CLIENT: True, BARE: False}

Stamps = list[tuple[int, int]]  # ns of the monotonic clock: acquired, and about to release
Turns = Callable[[float, float], Stamps]


class Round(NamedTuple):
    """The result of one round of one side. ``p50``, and ``server``, the server's CPU for a hand-over, in seconds.

    ``commands`` are those that clients send for each hand-over; ``executed`` includes those inside scripts.
    """

    p50: float
    rate: float
    jain: float
    commands: float
    executed: float = 0.0
    server: float = 0.0


def contend(channel: Channel, port: int) -> None:
    """A worker that takes part in every round."""
    wire, client = Wire(port), redis.Redis("127.0.0.1", port)
    lock = RedisBackend(f"redis://127.0.0.1:{port}/0", node_timeout=5).lock("bench")
    lock.locked()  # connect, so that the first round begins alike for all

    def push(value: bytes) -> None:
        wire.ask(b"RPUSH", TOKEN.encode(), value)

    sides: dict[str, Turns] = {
        OURS: lambda end, hold: _locking(lambda: lock, end, hold),
        PEER: lambda end, hold: _locking(lambda: redis_lock.Lock(client, "bench:prl", expire=30), end, hold),
        BARE: lambda end, hold: _passing(lambda: wire.ask(b"BLPOP", TOKEN.encode(), b"0"), push, end, hold),
        CLIENT: lambda end, hold: _passing(
            lambda: client.blpop([TOKEN]), lambda value: client.rpush(TOKEN, value), end, hold
        ),
    }
    channel.say("ready")
    while (told := channel.hear("go", TIMEOUT))["side"]:
        end = time.monotonic() + told["seconds"]
        channel.say("done", stamps=sides[told["side"]](end, told["hold"]))


def _locking(made: Callable[[], Any], end: float, hold: float) -> Stamps:
    stamps = []
    while time.monotonic() < end:
        lock = made()
        lock.acquire()
        got = time.monotonic_ns()
        if hold:
            time.sleep(hold * random.uniform(0.5, 1.5))
        stamps.append((got, time.monotonic_ns()))
        lock.release()
    return stamps


def _passing(pop: Callable[[], Any], push: Callable[[bytes], Any], end: float, hold: float) -> Stamps:
    """Take the turn by popping a token. After the end each process gets the token once more, and ends."""
    stamps, over = [], False
    while not over:
        pop()
        got = time.monotonic_ns()
        if hold:
            time.sleep(hold * random.uniform(0.5, 1.5))
        over = time.monotonic() >= end
        stamps.append((got, time.monotonic_ns()))
        push(b"1")
    return stamps


def _measured(side: str, workers: Sequence[Worker], client: redis.Redis, hold: float) -> Round:
    client.delete(TOKEN)
    before, executed_before, server = sent(client), executed(client), server_cpu(client)
    for worker in workers:
        worker.tell("go", side=side, seconds=SECONDS, hold=hold)
    if side in (BARE, CLIENT):
        client.rpush(TOKEN, "1")
    shares = [worker.expect("done", TIMEOUT)["stamps"] for worker in workers]
    server = server_cpu(client) - server
    turns = sorted((*stamp, who) for who, stamps in enumerate(shares) for stamp in stamps)
    gaps = [after[0] - turn[1] for turn, after in pairwise(turns) if turn[2] != after[2]]
    if any(gap < 0 for gap in gaps):
        raise AssertionError("two had it at once")
    length = (turns[-1][1] - turns[0][0]) / 1e9
    commands = (sent(client) - before).total() / len(turns)
    run = (executed(client) - executed_before) / len(turns)
    fairness = jain(map(len, shares))
    return Round(statistics.median(gaps) / 1e9, len(gaps) / length, fairness, commands, run, server / len(turns))


def sent(client: redis.Redis) -> Counter[str]:
    stats: dict[str, Any] = client.info("commandstats")
    return Counter({name: stats[f"cmdstat_{name}"]["calls"] for name in SENT if f"cmdstat_{name}" in stats})


def executed(client: redis.Redis) -> int:
    """Return the number of commands that the server has run, those inside scripts included."""
    stats: dict[str, Any] = client.info("commandstats")
    return sum(stat["calls"] for stat in stats.values())


def _contest(waiting: int, hold: float, rounds: int) -> dict[str, list[Round]]:
    """Run a contest of ``waiting`` processes and one more for the lock."""
    results: dict[str, list[Round]] = {OURS: [], BARE: [], CLIENT: [], PEER: []}
    with one_core(), RedisServer() as server, server.client() as client, contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(contend, server.port)) for _ in range(waiting + 1)]
        for worker in workers:
            worker.expect("ready", TIMEOUT)
        for number in range(rounds + 1):
            for side, measured in results.items():
                outcome = _measured(side, workers, client, hold)
                if number:  # the first is for warming up
                    measured.append(outcome)
        for worker in workers:
            worker.tell("go", side="")
            worker.result()
    return results


def _ratio(results: dict[str, list[Round]], side: str, base: str, field: str) -> float:
    pairs = zip(results[side], results[base], strict=True)
    return statistics.median(getattr(one, field) / getattr(other, field) for one, other in pairs)


def handover() -> Iterator[Row]:
    """Hand-over with 1 and with 32 waiting processes: time, fairness, commands."""
    for waiting in (1, 32):
        results = _contest(waiting, HOLD, ROUNDS)
        p50 = {side: statistics.median(each.p50 for each in rounds) * 1e6 for side, rounds in results.items()}
        for base, barred in BASES.items():
            for side, bar in ((OURS, 1.6 if barred else None), (PEER, None)):
                note = f"{p50[side]:.0f} µs, {p50[base]:.0f} µs"
                yield Row(
                    f"p50, {waiting} waiting, {side} / {base}", _ratio(results, side, base, "p50"), bar, note=note
                )
        fairness = statistics.median(each.jain for each in results[OURS])
        yield Row(f"Jain's index, {waiting} waiting", fairness, 0.99, "", least=True)
        commands = statistics.median(each.commands for each in results[OURS])
        yield Row(f"client commands a hand-over, {waiting} waiting", commands, 4, "")
        run = {side: statistics.median(each.executed for each in results[side]) for side in (OURS, PEER)}
        yield Row(
            f"commands that the server runs a hand-over, {waiting} waiting, {OURS}",
            run[OURS],
            unit="",
            note=f"{PEER}: {run[PEER]:.1f}",
        )
        cpu = {side: statistics.median(each.server for each in rounds) * 1e6 for side, rounds in results.items()}
        for side in (OURS, PEER):
            what, note = f"server CPU a hand-over, {waiting} waiting", f"{cpu[side]:.0f} µs, {cpu[CLIENT]:.0f} µs"
            yield Row(f"{what}, {side} / {CLIENT}", _ratio(results, side, CLIENT, "server"), note=note)


def handover_busy() -> Iterator[Row]:
    """8 and 32 processes that hold for 1 ms: hand-overs to another process a second."""
    for processes in (8, 32):
        results = _contest(processes - 1, 0.001, ROUNDS)
        for base, barred in BASES.items():
            for side, bar in ((OURS, 0.9 if barred else None), (PEER, None)):
                rates = [statistics.median(each.rate for each in results[which]) for which in (side, base)]
                what, note = f"hand-overs a second, {processes} processes, {side} / {base}", "{:.0f}/s, {:.0f}/s"
                ratio = _ratio(results, side, base, "rate")
                yield Row(what, ratio, bar, least=True, note=note.format(*rates))
