"""Replies that are plain numbers, as nearly all of ours are, without the parser, which costs four times as much."""

from __future__ import annotations

import select
import socket

LONGEST = 32  # bytes: more than any number that Redis answers has
_LOOK, _WAIT = int(socket.MSG_PEEK), int(socket.MSG_PEEK | socket.MSG_WAITALL)  # as enums they cost as much as the call


def read_numbers(sock: socket.socket, count: int, prelude: bytes = b"", least: int = 0) -> list[int] | None:
    """The next ``count`` replies if they follow ``prelude``, are numbers, and all that is there; else ``None``.

    ``least``: wait for that many bytes, so as not to wake up for the first reply when the last is waited for.

    It looks before it takes: for anything else, a connection that has ended included, the parser finds all there.
    Blocks as the socket does, and raises ``OSError`` as it does when it has waited in vain.
    """
    try:
        if type(sock) is not socket.socket:  # TLS can't look without taking: it sees that something is there, at most
            socket.socket.recv(sock, 1, _LOOK)
            return None
        text = sock.recv(least, _WAIT) if least else sock.recv(len(prelude) + LONGEST * count, _LOOK)
    except (BlockingIOError, TimeoutError):
        raise
    except OSError:
        return None
    if not (text.startswith(prelude + b":") and text.endswith(b"\r\n")):
        return None
    said = text[len(prelude) + 1 : -2]
    try:
        found = [int(said)] if count == 1 else [int(each) for each in said.split(b"\r\n:")]
    except ValueError:
        return None
    if len(found) != count:
        return None
    sock.recv(len(text))
    return found


def wait_readable(sock: socket.socket, seconds: float) -> bool:
    """Whether something comes within ``seconds``; not, at once, where Python keeps the socket's time limit."""
    if sock.gettimeout() is not None:
        return False
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
