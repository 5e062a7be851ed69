"""Replies read with a deadline.

A socket's own time limit starts anew with each read: a server that sends a byte now and then never exceeds it.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

T = TypeVar("T")
_BLOCKED = TimeoutError, RedisTimeoutError, BlockingIOError, ssl.SSLWantReadError


def timed_out(error: BaseException | None) -> bool:
    """Whether ``error`` was caused by a time limit."""
    while error is not None:
        if isinstance(error, _BLOCKED):
            return True
        error = error.__context__
    return False


class ReplyIncomplete(RedisTimeoutError):
    """The reply has not come, or not all of it. The read can be repeated."""


def read_reply(connection: Any, until: float = 0.0) -> Any:
    """The next reply, if it is complete by ``until``. Raises `ReplyIncomplete` and redis-py's errors."""
    return _by(until, connection, partial(connection.read_response, disable_decoding=True, disconnect_on_error=False))


def read_replies(connection: Any, count: int, until: float) -> list[Any]:
    """The next ``count`` replies, error replies included. Raises what `read_reply` raises."""
    found: list[Any] = []

    def read() -> list[Any]:
        while len(found) < count:
            try:
                found.append(connection.read_response(disable_decoding=True, disconnect_on_error=False))
            except ResponseError as error:
                found.append(error.with_traceback(None))  # its frames would keep the callers' locks alive
        return found

    return _by(until, connection, read)


def _by(until: float, connection: Any, read: Callable[[], T]) -> T:
    """The result of ``read``, which is repeated until ``until``. redis-py's parsers keep an incomplete reply."""
    sock: socket.socket = connection._sock
    limit = sock.gettimeout()
    try:
        while True:
            sock.settimeout(0.0)
            try:
                return read()
            except ValueError as error:
                raise InvalidResponse("the length or number in a reply is not an integer") from error
            except (RedisConnectionError, RedisTimeoutError) as error:
                if not timed_out(error):
                    raise
            if not _has_more(sock, until - time.monotonic()):
                raise ReplyIncomplete("no answer in time")
    finally:
        sock.settimeout(limit)


def _has_more(sock: socket.socket, seconds: float) -> bool:
    """Whether the socket has more data within ``seconds``."""
    if seconds <= 0:
        return False
    sock.settimeout(seconds)
    try:
        socket.socket.recv(sock, 1, socket.MSG_PEEK)  # also for TLS: the data itself isn't used
    except TimeoutError:
        return False
    except OSError:
        pass  # the next read raises it
    return True


def handshake(connection: Any, seconds: float) -> None:
    """Log in and select the database; each reply comes within ``seconds``."""
    read = connection.read_response

    def bounded(*args: Any, **options: Any) -> Any:
        until = time.monotonic() + seconds
        return _by(until, connection, partial(read, *args, **{**options, "disconnect_on_error": False}))

    connection.read_response = bounded
    try:
        connection.on_connect()
    finally:
        del connection.read_response
