"""The peers of the asyncio benchmarks: redis.asyncio, and hand-written code on bare streams."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable

import redis.asyncio

from django_redlock.client.resp import encode_command
from tests.benchmarks.peers import FREE

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
        """Acquire and release ``name``."""
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        key, token = name.encode(), os.urandom(16).hex().encode()
        writer.write(encode_command(b"SET", key, token, b"NX", b"PX", b"30000"))
        if await reader.readuntil(b"\r\n") != b"+OK\r\n":
            raise RuntimeError("taken")
        writer.write(encode_command(b"EVALSHA", SHA, b"1", key, token))
        await reader.readuntil(b"\r\n")
        self.idle.append((reader, writer))

    async def close(self) -> None:
        """Close all connections."""
        for _, writer in self.idle:
            writer.close()
            await writer.wait_closed()
