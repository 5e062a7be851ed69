"""Sends one request to one server and reads the replies, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from redis.exceptions import RedisError, ResponseError

from ..core.flow.requests import EvalScript, Fault
from .deadlines import LoopDeadline, read_replies
from .error_context import as_reply, without_context
from .fast_reply import read_numbers, read_usual, wait_readable
from .faults import fault_of
from .node_protocol import Node
from .pool import ServerPool, socket_of
from .resp import POKE, encode_eval

# An idle Redis checks the timeouts of blocked clients ten times a second. Any command makes Redis check at once.
BLOCK_GRACE = 0.002  # seconds that a blocking command may take longer than asked
CONFIRMED_BYTES = len(b":1700000000000000\r\n:1\r\n")  # bytes of the shortest reply to a granted and confirmed acquire


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

    def receive(self, connection: Any, timeout: float) -> list[Any]:
        """Read and return the replies, waiting up to ``timeout`` seconds. Raises redis-py's errors."""
        found = read_usual(socket_of(connection), self.replies)
        return read_replies(connection, self.replies, time.monotonic() + timeout) if found is None else found


class BlockingRequest(NamedTuple):
    """A request that begins with BLPOP. The server may delay the replies for up to ``seconds``.

    ``wake_reply``: the bytes that the server sends when BLPOP finds an element. Replies that begin with these bytes are
    read without redis-py's parser, to save time. Empty if no script follows BLPOP.
    """

    request: Request
    seconds: float
    wake_reply: bytes = b""

    def receive(self, connection: Any, timeout: float) -> list[Any]:
        """Read and return the replies, waiting up to ``timeout`` seconds longer than the server may block.

        Raises redis-py's errors.
        """
        end, sock = time.monotonic() + self.seconds + BLOCK_GRACE, socket_of(connection)
        # Without the parser a hand-over takes 310 µs instead of 450 (benchmark "handover", one waiter).
        if self.wake_reply and wait_readable(sock, self.seconds + BLOCK_GRACE):
            found = read_numbers(sock, self.request.replies - 1, self.wake_reply)
            if found is not None:
                return [self.wake_reply, *found]
        return _read_poking(connection, self.request.replies, end, timeout)


class ConfirmedRequest(NamedTuple):
    """A request that runs scripts, and then WAIT. The server may delay the reply to WAIT for up to ``seconds``.

    The reply to WAIT is not read if the first script grants nothing because the server is in quarantine.
    """

    request: Request
    seconds: float

    def receive(self, connection: Any, timeout: float) -> list[Any]:
        """Read and return the replies, waiting up to ``timeout`` seconds longer than the server may block.

        Raises redis-py's errors.
        """
        end, count = time.monotonic() + self.seconds + BLOCK_GRACE, self.request.replies
        # Waking up once for both replies to an acquire saves 50 µs of 490 (benchmark "replica").
        if self.request.compensation and self.seconds >= timeout:
            found = read_numbers(socket_of(connection), count, least=CONFIRMED_BYTES)
            if found is not None:
                return found
        replies = read_replies(connection, count - 1, end + timeout)
        return replies if _not_serving(replies) else replies + _read_poking(connection, 1, end, timeout)


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
        if sent is not request:
            pool = pool.blocking_pool
        connection = pool.checkout()
        connection.send_packed_command((payload,), check_health=False)
        replies = sent.receive(connection, pool.timeout)
        complete = len(replies) == count
        return replies
    except Exception as error:
        if connection is not None and pool is not None:
            error = pool.cause_of(error, connection)
        if not isinstance(error, RedisError | OSError):
            raise
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
    except (RedisError, OSError, ValueError) as error:
        return fault_of(node, without_context(error, handled), connection is not None, pool.where if pool else "")
    except BaseException:
        if pending is not None and connection is not None:
            connection.abandon(pending)
        raise


async def _asend_blocking(sent: BlockingRequest | ConfirmedRequest) -> list[Any] | Fault:
    node, key, payload, count, compensation, pool = sent.request
    connection, complete, timer, handled = None, False, None, sys.exception()
    pokes: list[bytes] = []
    try:
        pool = pool or node.known_pool(key) or await node.afind_pool(key)
        connection = await pool.acheckout()
        async with LoopDeadline(sent.seconds + pool.timeout):
            await connection.send_packed_command((payload,), check_health=False)
            timer = asyncio.get_running_loop().call_later(sent.seconds + BLOCK_GRACE, _poke, connection, pokes)
            replies: list[Any] = []
            while len(replies) < count + len(pokes):
                try:
                    replies.append(await connection.read_response(disable_decoding=True, disconnect_on_error=False))
                except ResponseError as error:
                    replies.append(as_reply(error))
                if len(replies) == count - 1 and type(sent) is ConfirmedRequest and _not_serving(replies):
                    return replies
        complete = True
        return replies[:count]
    except (RedisError, OSError, ValueError) as error:  # ValueError: a number that redis-py can't parse
        return fault_of(node, without_context(error, handled), connection is not None, pool.where if pool else "")
    finally:
        if timer is not None:
            timer.cancel()
        if connection is not None and pool is not None:
            if complete:
                await pool.acheckin(connection)
            else:
                await pool.adiscard(connection, compensation and encode_eval(compensation()))


def send_all(requests: Sequence[AnyRequest]) -> list[list[Any] | Fault]:
    """Send all requests at the same time, each in a thread, so that a slow server delays no other server.

    Returns the results of `send`, in the order of ``requests``.
    """
    replies: list[Any] = [None] * len(requests)

    def send_one(index: int) -> None:
        replies[index] = send(requests[index])

    threads = []
    for index in range(1, len(requests)):
        thread = threading.Thread(target=send_one, args=(index,), name="redlock-send", daemon=True)
        try:
            thread.start()
            threads.append(thread)
        except RuntimeError:  # no more threads may be started, or the interpreter is shutting down
            send_one(index)
    if requests:
        send_one(0)
    for thread in threads:
        thread.join()
    return replies


def _read_poking(connection: Any, count: int, end: float, timeout: float) -> list[Any]:
    """Read and return the next ``count`` replies. The server may block until ``end`` (monotonic seconds).

    Waits for the replies until ``timeout`` seconds after ``end``. Sends a PING at ``end``, because an idle server may
    notice late that the timeout of its blocking command has passed.
    """
    if connection.can_read(max(0.001, end - time.monotonic())):
        return read_replies(connection, count, end + timeout)
    connection.send_packed_command((POKE,), check_health=False)
    return read_replies(connection, count + 1, end + timeout)[:count]


def _poke(connection: Any, pokes: list[bytes]) -> None:
    pokes.append(POKE)
    connection._writer.write(POKE)


def _not_serving(replies: list[Any]) -> bool:
    """Return whether the first script granted nothing because the server is in quarantine.

    In quarantine there is nothing for replicas to confirm, so the reply to WAIT is not needed.
    """
    return isinstance(replies[0], list) and replies[0][:1] not in ([0], [1])
