"""The end of all waiting for an answer, however little of it comes at a time.

A socket's own time limit is one for each read: a server that sends a byte now and then never reaches it.
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
    """Whether that is what an error comes from."""
    while error is not None:
        if isinstance(error, _BLOCKED):
            return True
        error = error.__context__
    return False


class ReplyIncomplete(RedisTimeoutError):
    """The reply is not there, or not all of it: it can be asked for again."""


def read_reply(connection: Any, until: float = 0.0) -> Any:
    """The next reply, if all of it is there by ``until``. Raises `ReplyIncomplete` and redis-py's errors."""
    return _by(until, connection, partial(connection.read_response, disable_decoding=True, disconnect_on_error=False))


def read_replies(connection: Any, count: int, until: float) -> list[Any]:
    """The next ``count`` replies, errors among them. Raises as `read_reply`."""
    found: list[Any] = []

    def read() -> list[Any]:
        while len(found) < count:
            try:
                found.append(connection.read_response(disable_decoding=True, disconnect_on_error=False))
            except ResponseError as error:
                found.append(error.with_traceback(None))  # its frames would hold it, and the callers their locks
        return found

    return _by(until, connection, read)


def _by(until: float, connection: Any, read: Callable[[], T]) -> T:
    """What ``read`` comes to. redis-py's parsers keep what they have of a reply, and go on from there the next time."""
    sock: socket.socket = connection._sock
    limit = sock.gettimeout()
    try:
        while True:
            sock.settimeout(0.0)
            try:
                return read()
            except ValueError as error:
                raise InvalidResponse("a number that is none") from error
            except (RedisConnectionError, RedisTimeoutError) as error:
                if not timed_out(error):
                    raise
            if not _has_more(sock, until - time.monotonic()):
                raise ReplyIncomplete("no answer in time")
    finally:
        sock.settimeout(limit)


def _has_more(sock: socket.socket, seconds: float) -> bool:
    """Whether something comes within ``seconds``."""
    if seconds <= 0:
        return False
    sock.settimeout(seconds)
    try:
        socket.socket.recv(sock, 1, socket.MSG_PEEK)  # of TLS too: it is only asked whether there is anything
    except TimeoutError:
        return False
    except OSError:
        pass  # whoever reads will hear of it
    return True


def handshake(connection: Any, seconds: float) -> None:
    """Each thing that a new connection is asked first (password, database) is answered within ``seconds``."""
    read = connection.read_response

    def bounded(*args: Any, **options: Any) -> Any:
        until = time.monotonic() + seconds
        return _by(until, connection, partial(read, *args, **{**options, "disconnect_on_error": False}))

    connection.read_response = bounded
    try:
        connection.on_connect()
    finally:
        del connection.read_response
