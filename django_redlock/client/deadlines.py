"""Reads replies with a deadline for the complete reply, blocking or for asyncio.

The timeout of a socket is not enough. It starts anew with each read, so a server that sends single bytes slowly never
exceeds the timeout.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .error_context import as_reply, timed_out, without_context

T = TypeVar("T")
LOOP_TURN = 0.002  # seconds in which a loop that was blocked reads the data in its sockets


class ReplyIncomplete(RedisTimeoutError):
    """Raised when a reply has not arrived, or only a part of the reply. The read can be repeated."""


def read_replies(connection: Any, count: int, until: float) -> list[Any]:
    """Read the next ``count`` replies by ``until`` (monotonic seconds; 0: without waiting), and return them as a list.

    An error reply becomes an exception in the list.

    Raises `ReplyIncomplete` if the replies are not complete by then, and redis-py's errors.
    """
    found: list[Any] = []

    def read() -> list[Any]:
        while len(found) < count:
            try:
                found.append(connection.read_response(disable_decoding=True, disconnect_on_error=False))
            except ResponseError as error:
                found.append(as_reply(error))
        return found

    return _by(until, connection, read)


def _by(until: float, connection: Any, read: Callable[[], T]) -> T:
    """Call ``read`` again when more data has arrived on ``connection``, until it returns a result. Return the result.

    ``read`` can be repeated, because redis-py's parsers keep an incomplete reply. Raises `ReplyIncomplete` at ``until``
    (monotonic seconds), and redis-py's errors.
    """
    sock: socket.socket = connection._sock
    limit, handled = sock.gettimeout(), sys.exception()
    try:
        while True:
            sock.settimeout(0.0)
            try:
                return read()
            except ValueError as error:
                raise InvalidResponse("the length or number in a reply is not an integer") from error
            except (RedisConnectionError, RedisTimeoutError) as error:
                if not timed_out(without_context(error, handled)):
                    raise
            if not _has_more(sock, until - time.monotonic()):
                raise ReplyIncomplete("no reply in time")
    finally:
        sock.settimeout(limit)


def _has_more(sock: socket.socket, seconds: float) -> bool:
    """Wait up to ``seconds``, and return whether data, the end of the connection or an error has arrived."""
    if seconds <= 0:
        return False
    sock.settimeout(seconds)
    try:
        socket.socket.recv(sock, 1, socket.MSG_PEEK)  # works for TLS, too, because the data isn't used
    except TimeoutError:
        return False
    except OSError:
        pass  # the next read raises it
    return True


def handshake(connection: Any, seconds: float) -> None:
    """Log in and select the database on a new connection. Raises redis-py's errors.

    Waits up to ``seconds`` for each reply.
    """
    read = connection.read_response

    def bounded(*args: Any, **options: Any) -> Any:
        until = time.monotonic() + seconds
        return _by(until, connection, partial(read, *args, **{**options, "disconnect_on_error": False}))

    connection.read_response = bounded
    try:
        connection.on_connect()
    finally:
        del connection.read_response


class LoopDeadline:
    """Async context manager that limits the wait for a node's reply to ``seconds``. Raises ``TimeoutError``.

    If the application blocks the event loop, the loop notices the deadline late, although the reply may have arrived in
    time. The wait then goes on for as long as the loop was late, at most for ``seconds`` more.
    """

    __slots__ = ("_alarm", "_seconds", "_timeout")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        self._alarm = loop.call_at(end, self._due, loop, end)
        return self

    def _due(self, loop: asyncio.AbstractEventLoop, end: float) -> None:
        now = loop.time()
        self._timeout.reschedule(now + min(now - end, self._seconds) + LOOP_TURN)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._alarm.cancel()
        await self._timeout.__aexit__(kind, error, tb)
