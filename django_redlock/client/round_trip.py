"""One round trip: sends commands to one server and reads the replies, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from ..core.flow.drivers import adrive, drive
from ..core.flow.replies import is_from_quarantine
from ..core.flow.requests import EvalScript, Fault, Flow
from .connect import AwaitFuture
from .connection import AllInUse, Connection, ConnectionSilent, ReplyIncomplete
from .nodes.node import Node
from .pool import MAX_WAITERS, ServerPool
from .resp import POKE, encode_eval

# An idle Redis checks the timeouts of blocked clients ten times a second. Any command makes Redis check at once.
BLOCK_GRACE = 0.002  # seconds that a blocking command may take longer than asked


class ServerRequest(NamedTuple):
    """A request to one server.

    ``payload``: the encoded commands. ``replies``: the number of their replies. ``pool``: the server's pool; ``None``:
    the server of ``node`` that has ``key``, or any server of ``node`` without a ``key``. ``compensation``: returns the
    script that undoes the request, which is sent if the replies can't be read; ``None`` if there is nothing to undo.

    ``blocks``: the seconds for which BLPOP or WAIT may delay the replies; ``None``: no such command.
    ``awaits_replicas``: whether WAIT is the last command, after scripts. The reply to WAIT is not read if the first
    script was refused by a quarantine.
    """

    node: Node
    key: bytes | None
    payload: bytes
    replies: int = 1
    compensation: Callable[[], EvalScript] | None = None
    pool: ServerPool | None = None
    blocks: float | None = None
    awaits_replicas: bool = False


def send(request: ServerRequest) -> list[Any] | Fault:
    """Send a request and read its replies, blocking. An error reply is an exception in the list.

    Returns a `Fault` if the server is unavailable or the replies can't be read.
    """
    node, key, payload, count, _, pool, blocks, _ = request
    if blocks is not None:
        return drive(_send_blocking(request, blocks), lambda each: each.perform())
    connection = None
    try:
        pool = pool or node.known_pool(key) or drive(node.find_pool(key), AwaitFuture.perform)
        connection = pool.checkout()
        connection.send(payload)
        replies = connection.receive(count, time.monotonic() + pool.timeout)
    except BaseException as error:
        if (fault := _failed(request, pool, connection, error)) is None:
            raise
        return fault
    pool.checkin(connection)
    return replies


async def asend(request: ServerRequest) -> list[Any] | Fault:
    """`send` for asyncio. A request that does not block is sent on a connection that the tasks of the loop share."""
    node, key, payload, count, compensation, pool, blocks, _ = request
    if blocks is not None:
        return await adrive(_send_blocking(request, blocks), lambda each: each.aperform())
    connection, pending = None, None
    try:
        pool = pool or node.known_pool(key)
        if pool is None:
            pool = await adrive(node.find_pool(key), AwaitFuture.aperform)
        connection = pool.shared.current() or await pool.shared.open()
        pending = connection.send(payload, count, compensation)
        return await pending.future
    except (RedisError, OSError) as error:
        return node.record_fault(error, connection is not None, pool.where if pool else "")
    except BaseException:
        if pending is not None and connection is not None:
            connection.abandon(pending)
        raise


def _send_blocking(request: ServerRequest, blocks: float) -> Flow[list[Any] | Fault]:
    """`send` as a flow, for a request that blocks on the server. Yields `AwaitFuture` and `AwaitReadable`."""
    node, key, payload, count, _, pool, _, awaits_replicas = request
    connection, slot, replies = None, None, []
    try:
        pool = pool or node.known_pool(key) or (yield from node.find_pool(key))
        if not awaits_replicas and (slot := pool.waiters.take()) is None:
            raise AllInUse(f"{MAX_WAITERS} connections are blocked")  # noqa: TRY301  (`_failed` makes the fault)
        connection = yield from pool.checkout_flow(pool.timeout if awaits_replicas else 0.0, spare=1)
        connection.send(payload)
        end = time.monotonic() + blocks + BLOCK_GRACE
        if awaits_replicas:
            replies = yield from _receive(connection, count - 1, end + pool.timeout)
            if is_from_quarantine(replies[0]):  # nothing for replicas to confirm: don't await WAIT's reply
                pool.discard(connection)
                return replies
        missing = count - len(replies)
        try:
            replies += yield from _receive(connection, missing, end)
        except ReplyIncomplete:  # an idle server may notice late that the timeout of its blocking command has passed
            connection.send(POKE)
            replies += (yield from _receive(connection, missing + 1, end + pool.timeout))[:missing]
    except BaseException as error:
        if (fault := _failed(request, pool, connection, error)) is None:
            raise
        return fault
    finally:
        del slot  # now: the traceback of an exception may keep this frame
    pool.checkin(connection)
    return replies


def _failed(
    request: ServerRequest, pool: ServerPool | None, connection: Connection | None, error: BaseException
) -> Fault | None:
    """Close ``connection`` because of ``error``. Unless the request will be repeated, first send the compensation.

    Returns the `Fault` for an error of the server or the connection, ``None`` for an interrupt or a cancellation.
    """
    fault = None
    if isinstance(error, RedisError | OSError):
        if isinstance(error, ReplyIncomplete) and connection is not None and connection.was_idle:
            error = ConnectionSilent(*error.args)
        fault = request.node.record_fault(error, connection is not None, pool.where if pool else "")
    if connection is not None and pool is not None:
        undo = None if fault is not None and fault.stale else request.compensation
        pool.discard(connection, undo and encode_eval(undo()))
    return fault


class AwaitReadable(NamedTuple):
    """A request of a flow: wait for data on ``connection``. ``until``: deadline (monotonic seconds)."""

    connection: Connection
    until: float

    def perform(self) -> None:
        self.connection.wait(self.until)

    async def aperform(self) -> None:
        loop, number = asyncio.get_running_loop(), self.connection.fileno()
        readable = asyncio.Event()
        loop.add_reader(number, readable.set)
        timer = loop.call_later(max(0.0, self.until - time.monotonic()), readable.set)
        try:
            await readable.wait()
        finally:
            timer.cancel()
            loop.remove_reader(number)


def _receive(connection: Connection, count: int, until: float) -> Flow[list[Any]]:
    """`Connection.receive` as a flow. After ``until``, reads what has arrived, because the loop may have been busy."""
    while not connection.read_available(count):
        late = time.monotonic() >= until
        yield AwaitReadable(connection, until)
        if not connection.fill() and late:
            raise ReplyIncomplete("no reply in time")
    return connection.receive(count, 0.0)
