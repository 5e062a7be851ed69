"""Acquire and release without contention under asyncio: one task, and 200 tasks with a name each."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Results, Row, one_core, spending, turns
from tests.benchmarks.peers import FREE

OURS, BASE = "async with backend.lock()", "redis.asyncio by hand"
TASKS, ROUNDS = 200, 20
PAIRS = {1: 200, TASKS: 1200}  # of all tasks in one round


AsyncPair = Callable[[str], Awaitable[None]]


async def redis_asyncio(client: redis.asyncio.Redis) -> AsyncPair:
    """SET NX PX and EVALSHA through redis.asyncio. Its pool opens a connection for each task at work."""
    sha = await client.script_load(FREE)

    async def pair(name: str) -> None:
        token = os.urandom(16).hex()
        if not await client.set(name, token, nx=True, px=30000):
            raise RuntimeError("taken")
        await client.evalsha(sha, 1, name, token)

    return pair


@asynccontextmanager
async def _sides(server: RedisServer) -> AsyncIterator[dict[str, AsyncPair]]:
    client = redis.asyncio.Redis(host="127.0.0.1", port=server.port, max_connections=TASKS)
    backend = RedisBackend(server.url, node_timeout=5)

    async def ours(name: str) -> None:
        async with backend.lock(name):
            pass

    yield {BASE: await redis_asyncio(client), OURS: ours}
    await client.aclose()
    await backend.aclose()
    backend.close()


async def _measured(server: RedisServer, admin: Any, tasks: int) -> Results:
    async def work(pair: AsyncPair, number: int) -> None:
        name = f"bench:{number}"
        for _ in range(PAIRS[tasks] // tasks):
            await pair(name)

    async with _sides(server) as sides:
        results = Results({name: [] for name in sides})
        for number, name in turns(sides, ROUNDS):
            with spending([admin], PAIRS[tasks]) as found:
                await asyncio.gather(*(work(sides[name], each) for each in range(tasks)))
            results[name] += found if number else []
        return results


def asyncio_pair() -> Iterator[Row]:
    """asyncio: a pair of one task, and of 200 tasks with a name each; time, client's CPU, server's CPU."""
    with one_core(), RedisServer() as server, server.client() as admin:
        results = asyncio.run(_measured(server, admin, 1))
        yield results.row("a pair, one task, ", OURS, BASE, "clock", 0.8)
        yield results.row("client CPU a pair, one task, ", OURS, BASE, "client")
    with one_core():
        with one_core(another=True):
            server = RedisServer().start()
        with server, server.client() as admin:
            results = asyncio.run(_measured(server, admin, TASKS))
            for field, what, bar in (
                ("clock", "", 0.5),
                ("client", "client CPU ", None),
                ("server", "server CPU ", 1.0),
            ):
                yield results.row(f"{what}a pair, {TASKS} tasks, ", OURS, BASE, field, bar)
