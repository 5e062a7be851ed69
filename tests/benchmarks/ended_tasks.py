"""The memory that ended tasks use in the lock store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.flow.requests import Batch
from django_redlock.core.keys import keys_for
from django_redlock.core.owner import describe_owner
from django_redlock.core.values import Claim, new_token
from django_redlock.single_instance.body import BODY
from django_redlock.single_instance.call import TaskCall
from django_redlock.single_instance.modes import MODES
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Row

TASKS = 100_000
BATCH = 500
BAR = 40
NOW = 0x6B000000


def ended_tasks() -> Iterator[Row]:
    """Memory of the lock store for each task that has ended, 100,000 tasks with names of their own."""
    with RedisServer() as server, server.client() as client:
        backend = RedisBackend(server.url, node_timeout=10)
        for what, rate, cluster in (
            ("100 a second", 100, False),
            ("1,000", 1000, False),
            ("1,000, Cluster", 1000, True),
        ):
            client.flushall()
            before = used(client)
            for first in range(0, TASKS, BATCH):
                run(backend, [call(number, rate, cluster) for number in range(first, first + BATCH)])
            row = Row(f"memory left by an ended task, {what}", (used(client) - before) / TASKS, BAR, "B")
            yield row._replace(note=f"{client.dbsize()} keys")
        backend.close()


def call(number: int, rate: int, cluster: bool) -> TaskCall:
    """Return the call of that number, sent at this rate per second."""
    keys = keys_for(b"redlock", f"settle:{number}".encode())
    sent = f"{NOW + number // rate:08x}{os.urandom(8).hex()}"
    return TaskCall("", keys, "settle", f"{number}", sent, MODES["while_executing"], 1, 60, 3600, "ended", cluster)


def run(backend: RedisBackend, calls: list[TaskCall]) -> None:
    """Start and end the bodies of these calls."""
    claims = [Claim(each.name, (each.keys,), new_token(), describe_owner(), 30.0, payload=each) for each in calls]
    for requests in (
        [BODY.acquire_request(claim) for claim in claims],
        [BODY.release_request(claim) for claim in claims],
    ):
        replies = backend.perform(Batch(requests))
        assert all(isinstance(reply, int) and reply for reply in replies), replies[:3]


def used(client: Any) -> int:
    """Return the bytes that the server's data uses."""
    return int(client.info("memory")["used_memory"])
