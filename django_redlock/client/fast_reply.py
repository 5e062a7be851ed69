"""Reads the usual replies without redis-py's parser.

Nearly all replies of our scripts are integers, and SET acquires a free mutex. The parser adds 24 µs to the
140 µs of CPU time for an acquire and a release on one Redis (benchmark "pair").
"""

from __future__ import annotations

import select
import socket
from typing import Any

MAX_REPLY_BYTES = 32  # longer than any integer reply
# The key was set, or exists (RESP2, RESP3).
_SET_REPLIES: dict[bytes, list[Any]] = {b"+OK\r\n": [b"OK"], b"$-1\r\n": [None], b"_\r\n": [None]}
# Plain integers: the operators of the enum cost as much as the system call.
_PEEK, _PEEK_ALL = int(socket.MSG_PEEK), int(socket.MSG_PEEK | socket.MSG_WAITALL)


def read_numbers(sock: socket.socket, count: int, prelude: bytes = b"", least: int = 0) -> list[int] | None:
    """Read ``count`` integer replies from ``sock``, and return the integers.

    ``prelude`` is the encoded reply that is expected before the integers. If the socket has other bytes, or the
    connection is closed, returns ``None`` and leaves the bytes in the socket for the parser. ``least`` is a number of
    bytes to wait for, so that the call wakes up once for several replies. Raises ``OSError`` on a timeout of ``sock``.
    """
    data = _peek(sock, least or len(prelude) + MAX_REPLY_BYTES * count, _PEEK_ALL if least else _PEEK)
    numbers = _numbers(data, count, prelude)
    if numbers is not None:
        sock.recv(len(data))
    return numbers


def read_usual(sock: socket.socket, count: int) -> list[Any] | None:
    """Read ``count`` integer replies, or the reply to SET NX, and return them as the parser does.

    If the socket has other bytes, or the connection is closed, returns ``None`` and leaves the bytes in the socket for
    the parser. Raises ``OSError`` on a timeout of ``sock``.
    """
    data = _peek(sock, MAX_REPLY_BYTES * count, _PEEK)
    replies = (_SET_REPLIES.get(data) if count == 1 else None) or _numbers(data, count)
    if replies is not None:
        sock.recv(len(data))
    return replies


def _numbers(data: bytes, count: int, prelude: bytes = b"") -> list[int] | None:
    if not (data.startswith(prelude + b":") and data.endswith(b"\r\n")):
        return None
    digits = data[len(prelude) + 1 : -2]
    try:
        numbers = [int(digits)] if count == 1 else [int(each) for each in digits.split(b"\r\n:")]
    except ValueError:
        return None
    return numbers if len(numbers) == count else None


def _peek(sock: socket.socket, size: int, flags: int) -> bytes:
    """Return up to ``size`` bytes that ``sock`` has, and leave them there. Waits for the first byte.

    Returns no bytes if they can't be read here. Raises ``OSError`` on a timeout of ``sock``.
    """
    try:
        if type(sock) is not socket.socket:  # under TLS a peek can wait for data, but can't decrypt the data
            socket.socket.recv(sock, 1, _PEEK)
            return b""
        return sock.recv(size, flags)
    except (BlockingIOError, TimeoutError):
        raise
    except OSError:
        return b""


def wait_readable(sock: socket.socket, seconds: float) -> bool:
    """Wait up to ``seconds`` for data, and return whether ``sock`` is readable.

    Returns ``False`` at once if ``sock`` has a timeout in Python (``settimeout``). After ``False`` the caller reads
    with redis-py's parser.
    """
    if sock.gettimeout() is not None:
        return False
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
