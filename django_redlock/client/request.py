"""Sends one request to one server and reads the replies, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from ..core.flow.requests import EvalScript, Fault
from ..core.process.threads import Kind, start
from .connection import Connection, ConnectionSilent, ReplyIncomplete
from .errors import fault_of, without_context
from .loop_connection import LoopConnection, PendingRequest
from .nodes.protocol import Node
from .pool import ServerPool
from .resp import POKE, encode_eval

# An idle Redis checks the timeouts of blocked clients ten times a second. Any command makes Redis check at once.
BLOCK_GRACE = 0.002  # seconds that a blocking command may take longer than asked


class Request(NamedTuple):
    """A request whose replies the server sends at once, without blocking.

    ``payload`` has the encoded commands, ``replies`` is the number of their replies. The request goes to the server of
    ``pool``. Without a ``pool`` it goes to the server of ``node`` that has ``key``, and without a ``key`` to any server
    of ``node``. ``compensation`` returns the script that undoes the request. The script is sent if the replies can't be
    read. ``compensation`` is ``None`` if there is nothing to undo.
    """

    node: Node
    key: bytes | None
    payload: bytes
    replies: int = 1
    compensation: Callable[[], EvalScript] | None = None
    pool: ServerPool | None = None

    def receive(self, connection: Connection, timeout: float) -> list[Any]:
        """Read and return the replies, waiting up to ``timeout`` seconds. Raises redis-py's errors."""
        return connection.receive(self.replies, time.monotonic() + timeout)


class BlockingRequest(NamedTuple):
    """A request that begins with BLPOP. The server may delay the replies for up to ``seconds``."""

    request: Request
    seconds: float

    def receive(self, connection: Connection, timeout: float) -> list[Any]:
        """Read and return the replies, waiting up to ``timeout`` seconds longer than the server may block.

        Raises redis-py's errors.
        """
        return _receive_poking(connection, self.request.replies, time.monotonic() + self.seconds + BLOCK_GRACE, timeout)


class ConfirmedRequest(NamedTuple):
    """A request that runs scripts, and then WAIT. The server may delay the reply to WAIT for up to ``seconds``.

    The reply to WAIT is not read if the first script grants nothing because the server is in quarantine.
    """

    request: Request
    seconds: float

    def receive(self, connection: Connection, timeout: float) -> list[Any]:
        """Read and return the replies, waiting up to ``timeout`` seconds longer than the server may block.

        Raises redis-py's errors.
        """
        end = time.monotonic() + self.seconds + BLOCK_GRACE
        replies = connection.receive(self.request.replies - 1, end + timeout)
        return replies if _not_serving(replies) else replies + _receive_poking(connection, 1, end, timeout)


AnyRequest = Request | BlockingRequest | ConfirmedRequest


def send(sent: AnyRequest) -> list[Any] | Fault:
    """Send a request and read its replies, blocking. An error reply is an exception in the list.

    Returns a `Fault` if the server is unavailable or the replies can't be read.
    """
    request = sent if isinstance(sent, Request) else sent.request
    node, key, payload, count, compensation, pool = request
    connection, complete, handled = None, False, sys.exception()
    try:
        pool = pool or node.known_pool(key) or node.find_pool(key)
        connection = pool.checkout(sent is not request)
        connection.send(payload)
        replies = sent.receive(connection, pool.timeout)
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


async def asend(sent: AnyRequest) -> list[Any] | Fault:
    """`send` for asyncio. A request that does not block is sent on a connection that the tasks of the loop share."""
    if not isinstance(sent, Request):
        return await _asend_blocking(sent)
    node, key, payload, count, compensation, pool = sent
    connection, pending, handled = None, None, sys.exception()
    try:
        pool = pool or node.known_pool(key) or await node.afind_pool(key)
        connection = pool.shared() or await pool.ashared()
        pending = connection.send(payload, count, compensation)
        return await pending.future
    except (RedisError, OSError) as error:
        return fault_of(node, without_context(error, handled), connection is not None, pool.where if pool else "")
    except BaseException:
        if pending is not None and connection is not None:
            connection.abandon(pending)
        raise


async def _asend_blocking(sent: BlockingRequest | ConfirmedRequest) -> list[Any] | Fault:
    node, key, payload, count, compensation, pool = sent.request
    connection, timer, complete, handled = None, None, False, sys.exception()
    try:
        pool = pool or node.known_pool(key) or await node.afind_pool(key)
        connection = LoopConnection(await pool.acheckout(seconds=0.0), pool.timeout, pool.discard)
        seconds = sent.seconds + BLOCK_GRACE
        first = connection.send(payload, max(1, count - 1), compensation, seconds + pool.timeout)
        others = [connection.send(b"", 1, compensation, seconds + pool.timeout)] if count > 1 else []
        timer = asyncio.get_running_loop().call_later(seconds, _poke, connection, others)
        replies = await first.future
        if type(sent) is ConfirmedRequest and _not_serving(replies):
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


def send_all(requests: Sequence[AnyRequest]) -> list[list[Any] | Fault]:
    """Send all requests at the same time, each in a thread, so that a slow server delays no other server.

    Returns the results of `send`, in the order of ``requests``.
    """
    replies: list[Any] = [None] * len(requests)

    def send_one(index: int) -> None:
        replies[index] = send(requests[index])

    threads = []
    for index in range(1, len(requests)):
        if thread := start(Kind.CALL, send_one, index, postpones_forks=False):
            threads.append(thread)
        else:
            send_one(index)
    if requests:
        send_one(0)
    for thread in threads:
        thread.join()
    return replies


def _receive_poking(connection: Connection, count: int, end: float, timeout: float) -> list[Any]:
    """Read and return the next ``count`` replies. The server may block until ``end`` (monotonic seconds).

    Waits for the replies until ``timeout`` seconds after ``end``. Sends a PING at ``end``, because an idle server may
    notice late that the timeout of its blocking command has passed.
    """
    with suppress(ReplyIncomplete):
        return connection.receive(count, end)
    connection.send(POKE)
    return connection.receive(count + 1, end + timeout)[:count]


def _poke(connection: LoopConnection, pending: list[PendingRequest]) -> None:
    with suppress(RedisError):
        pending.append(connection.send(POKE, 1))


def _not_serving(replies: list[Any]) -> bool:
    """Return whether the first script granted nothing because the server is in quarantine.

    In quarantine there is nothing for replicas to confirm, so the reply to WAIT is not needed.
    """
    return isinstance(replies[0], list) and replies[0][:1] not in ([0], [1])
