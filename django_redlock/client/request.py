"""Sends one request to one server and reads the replies, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from ..core.flow.drivers import adrive, drive
from ..core.flow.requests import EvalScript, Fault
from .connect import AwaitFuture
from .connection import Connection, ConnectionSilent, ReplyIncomplete
from .errors import fault_of, without_context
from .loop_connection import LoopConnection, PendingRequest
from .nodes.node import Node
from .pool import ServerPool
from .resp import POKE, encode_eval

# An idle Redis checks the timeouts of blocked clients ten times a second. Any command makes Redis check at once.
BLOCK_GRACE = 0.002  # seconds that a blocking command may take longer than asked


class Request(NamedTuple):
    """A request to one server.

    ``payload`` has the encoded commands, ``replies`` is the number of their replies. The request goes to the server of
    ``pool``. Without a ``pool`` it goes to the server of ``node`` that has ``key``, and without a ``key`` to any server
    of ``node``. ``compensation`` returns the script that undoes the request. The script is sent if the replies can't be
    read. ``compensation`` is ``None`` if there is nothing to undo.

    ``blocks``: the seconds for which the server may delay the replies, because BLPOP or WAIT is among the commands;
    ``None``: it replies at once. ``confirmed``: WAIT comes last, after scripts. Its reply is not read if the first
    script granted nothing because the server is in quarantine.
    """

    node: Node
    key: bytes | None
    payload: bytes
    replies: int = 1
    compensation: Callable[[], EvalScript] | None = None
    pool: ServerPool | None = None
    blocks: float | None = None
    confirmed: bool = False


def send(request: Request) -> list[Any] | Fault:
    """Send a request and read its replies, blocking. An error reply is an exception in the list.

    Returns a `Fault` if the server is unavailable or the replies can't be read.
    """
    node, key, payload, count, compensation, pool, blocks, confirmed = request
    connection, complete, handled = None, False, sys.exception()
    try:
        pool = pool or node.known_pool(key) or drive(node.find_pool(key), AwaitFuture.perform)
        connection = pool.checkout(blocks is not None)
        connection.send(payload)
        if blocks is None:
            replies = connection.receive(count, time.monotonic() + pool.timeout)
        else:
            replies = _receive_late(connection, count, time.monotonic() + blocks + BLOCK_GRACE, pool.timeout, confirmed)
        complete = len(replies) == count
        return replies
    except (RedisError, OSError) as error:
        silent = isinstance(error, ReplyIncomplete) and connection is not None and connection.was_idle
        if silent:
            error, compensation = ConnectionSilent(*error.args), None  # it is repeated: no undo may follow
        return fault_of(node, without_context(error, handled), connection is not None, pool.where if pool else "")
    finally:
        if connection is not None and pool is not None:
            if complete:
                pool.checkin(connection)
            else:
                pool.discard(connection, compensation and encode_eval(compensation()))


async def asend(request: Request) -> list[Any] | Fault:
    """`send` for asyncio. A request that does not block is sent on a connection that the tasks of the loop share."""
    if request.blocks is not None:
        return await _asend_blocking(request, request.blocks + BLOCK_GRACE)
    node, key, payload, count, compensation, pool, *_ = request
    connection, pending, handled = None, None, sys.exception()
    try:
        pool = pool or node.known_pool(key)
        if pool is None:
            pool = await adrive(node.find_pool(key), AwaitFuture.aperform)
        connection = pool.shared() or await pool.ashared()
        pending = connection.send(payload, count, compensation)
        return await pending.future
    except (RedisError, OSError) as error:
        return fault_of(node, without_context(error, handled), connection is not None, pool.where if pool else "")
    except BaseException:
        if pending is not None and connection is not None:
            connection.abandon(pending)
        raise


async def _asend_blocking(request: Request, seconds: float) -> list[Any] | Fault:
    node, key, payload, count, compensation, pool, _, confirmed = request
    connection, timer, complete, handled = None, None, False, sys.exception()
    try:
        pool = pool or node.known_pool(key)
        if pool is None:
            pool = await adrive(node.find_pool(key), AwaitFuture.aperform)
        connection = LoopConnection(await pool.acheckout(seconds=0.0), pool.timeout, pool.discard)
        first = connection.send(payload, max(1, count - 1), compensation, seconds + pool.timeout)
        others = [connection.send(b"", 1, compensation, seconds + pool.timeout)] if count > 1 else []
        timer = asyncio.get_running_loop().call_later(seconds, _poke, connection, others)
        replies = await first.future
        if confirmed and _not_serving(replies):
            return replies
        for other in others:
            replies += await other.future
        complete = True
        return replies[:count]
    except (RedisError, OSError) as error:
        if isinstance(error, ConnectionSilent):
            compensation = None  # the request is repeated: no undo may follow
        return fault_of(node, without_context(error, handled), connection is not None, pool.where if pool else "")
    finally:
        if timer is not None:
            timer.cancel()
        if connection is not None and pool is not None:
            if complete and (unused := connection.detach()) is not None:
                pool.checkin(unused)
            else:
                connection.abort(compensation and encode_eval(compensation()))


def _receive_late(connection: Connection, count: int, end: float, timeout: float, confirmed: bool) -> list[Any]:
    """Read and return the ``count`` replies to a request that blocks on the server until ``end`` (monotonic seconds).

    Waits for the replies until ``timeout`` seconds after ``end``. Sends a PING at ``end``, because an idle server may
    notice late that the timeout of its blocking command has passed. ``confirmed``: as in `Request`.
    """
    replies = connection.receive(count - 1, end + timeout) if confirmed else []
    if replies and _not_serving(replies):
        return replies
    count -= len(replies)
    with suppress(ReplyIncomplete):
        return replies + connection.receive(count, end)
    connection.send(POKE)
    return replies + connection.receive(count + 1, end + timeout)[:count]


def _poke(connection: LoopConnection, pending: list[PendingRequest]) -> None:
    with suppress(RedisError):
        pending.append(connection.send(POKE, 1))


def _not_serving(replies: list[Any]) -> bool:
    """Return whether the first script granted nothing because the server is in quarantine.

    In quarantine there is nothing for replicas to confirm, so the reply to WAIT is not needed.
    """
    return isinstance(replies[0], list) and replies[0][:1] not in ([0], [1])
