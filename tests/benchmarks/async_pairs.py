"""Acquire and release without contention under asyncio: one task, and 200 tasks with a name each."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio

from django_redlock.backends.redis import RedisBackend
from django_redlock.client.resp import encode_command
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Results, Row, one_core, spending, turns
from tests.benchmarks.peers import FREE

OURS, BASE, BARE = "async with backend.lock()", "redis.asyncio by hand", "bare streams"
TASKS, ROUNDS = 200, 20
PAIRS = {1: 200, TASKS: 1200}  # of all tasks in one round


AsyncPair = Callable[[str], Awaitable[None]]
SHA = hashlib.sha1(FREE.encode(), usedforsecurity=False).hexdigest().encode()  # loaded by `redis_asyncio`


async def redis_asyncio(client: redis.asyncio.Redis) -> AsyncPair:
    """SET NX PX and EVALSHA through redis.asyncio. Its pool opens a connection for each task at work."""
    sha = await client.script_load(FREE)

    async def pair(name: str) -> None:
        token = os.urandom(16).hex()
        if not await client.set(name, token, nx=True, px=30000):
            raise RuntimeError("taken")
        await client.evalsha(sha, 1, name, token)

    return pair


class Streams:
    """SET NX PX and EVALSHA on bare streams, with a connection for each active task."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def pair(self, name: str) -> None:
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        key, token = name.encode(), os.urandom(16).hex().encode()
        writer.write(encode_command(b"SET", key, token, b"NX", b"PX", b"30000"))
        if await reader.readuntil(b"\r\n") != b"+OK\r\n":
            raise RuntimeError("taken")
        writer.write(encode_command(b"EVALSHA", SHA, b"1", key, token))
        await reader.readuntil(b"\r\n")
        self.idle.append((reader, writer))

    async def close(self) -> None:
        for _, writer in self.idle:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def _sides(server: RedisServer) -> AsyncIterator[dict[str, AsyncPair]]:
    client, streams = (
        redis.asyncio.Redis(host="127.0.0.1", port=server.port, max_connections=TASKS),
        Streams(server.port),
    )
    backend = RedisBackend(server.url, node_timeout=5)

    async def ours(name: str) -> None:
        async with backend.lock(name):
            pass

    yield {BASE: await redis_asyncio(client), OURS: ours, BARE: streams.pair}
    await client.aclose()
    await streams.close()
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


def _rows(what: str, results: Results, field: str, bar: float | None = None) -> Iterator[Row]:
    for side in (OURS, BARE):
        yield results.row(f"{what}, ", side, BASE, field, bar if side == OURS else None)


def asyncio_pair() -> Iterator[Row]:
    """asyncio: a pair of one task, and of 200 tasks with a name each; time, client's CPU, server's CPU."""
    with one_core(), RedisServer() as server, server.client() as admin:
        results = asyncio.run(_measured(server, admin, 1))
        yield from _rows("a pair, one task", results, "clock", 0.8)
        yield from _rows("client CPU a pair, one task", results, "client")
    with one_core():
        with one_core(another=True):
            server = RedisServer().start()
        with server, server.client() as admin:
            results = asyncio.run(_measured(server, admin, TASKS))
            yield from _rows(f"a pair, {TASKS} tasks", results, "clock", 0.5)
            yield from _rows(f"client CPU a pair, {TASKS} tasks", results, "client")
            yield from _rows(f"server CPU a pair, {TASKS} tasks", results, "server", 1.0)
