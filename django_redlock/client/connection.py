"""One connection to one server: a non-blocking socket and the reader of its replies."""

from __future__ import annotations

import select
import socket
import ssl
import time
import weakref
from collections.abc import Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..core.process import fork
from .resp import INCOMPLETE, Reader

READ_SIZE = 65536  # bytes; also more than one record of TLS, so that no decrypted bytes stay behind
_WOULD_BLOCK = BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError


class ReplyIncomplete(RedisTimeoutError):
    """Raised when a reply has not arrived completely. The read can be repeated."""


class ConnectionSilent(RedisTimeoutError):
    """Raised when a connection that had been idle gives no reply. A firewall may have dropped the connection silently.

    The request may be repeated on a new connection.
    """


class AllInUse(RedisConnectionError):
    """Raised by a pool when all connections that it may open are in use."""


def closed_by_server(replied: bool = True) -> RedisConnectionError:
    """Return the exception for a connection that the server closed. ``replied``: whether the server had replied."""
    return RedisConnectionError(f"Connection closed by server{'' if replied else ' before its first reply'}.")


class Connection:
    """A connection on which one caller at a time sends requests and reads their replies.

    ``source``: redis-py's connection, which closes the socket ``sock``, also when this object is garbage-collected. It
    must not refer to this object. ``timeout``: the longest wait for a server that accepts no bytes, in seconds.
    """

    __slots__ = (
        *("__weakref__", "_arrived", "_close", "_generation", "_readable", "_reader", "_replied", "_sock", "_source"),
        *("_timeout", "idle_since", "loaded", "opened_at", "slot"),
    )

    def __init__(self, source: Any, sock: socket.socket, timeout: float) -> None:
        self.opened_at = time.monotonic()
        self.idle_since = 0.0  # monotonic seconds of the last reply before the last checkin; 0: a new connection
        self.loaded: set[bytes] = set()  # SHA-1 of the scripts whose source was sent
        self.slot: Any = None  # of the pool's limit, while the connection is in use
        self._source = source
        self._sock = sock
        self._timeout = timeout
        self._reader = Reader()
        self._arrived: list[Any] = []  # replies that were read, of a request that is not complete
        self._readable = _poll_for(sock, writing=False)
        self._replied = False  # the server has sent something
        self._generation = fork.generation
        # Without a finalizer, the garbage collector may reach the socket before the connection that would close it.
        self._close = weakref.finalize(self, source.disconnect)
        self._close.atexit = False
        sock.setblocking(False)

    @property
    def was_idle(self) -> bool:
        """Whether the connection had served a request before the current request."""
        return self.idle_since > 0

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a child of a fork, and the socket belongs to its parent. A child must not write."""
        return self._generation != fork.generation

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._close()

    # ── blocking ─────────────────────────────────────────────────────────────────────────────

    def send(self, payload: bytes) -> None:
        """Send ``payload``. Raises redis-py's errors."""
        sent = self.write(payload)
        if sent == len(payload):
            return
        until, wait = time.monotonic() + self._timeout, _poll_for(self._sock, writing=True)
        while sent < len(payload):
            if not wait(max(0.0, until - time.monotonic()) * 1000):
                raise ReplyIncomplete("no reply in time")
            sent += self.write(payload[sent:])

    def receive(self, count: int, until: float) -> list[Any]:
        """Read and return the next ``count`` replies. ``until``: the deadline (monotonic seconds); 0: don't wait.

        An error reply is an exception in the list. Raises `ReplyIncomplete` if replies are missing at the deadline, and
        redis-py's errors.
        """
        arrived, reader = self._arrived, self._reader
        while len(arrived) < count:
            if reader.unread and (reply := reader.reply()) is not INCOMPLETE:
                arrived.append(reply)
            elif self._readable(max(0.0, until - time.monotonic()) * 1000):
                self.fill()
            else:
                raise ReplyIncomplete("no reply in time")
        self._arrived = arrived[count:]
        return arrived[:count]

    def wait(self, until: float) -> None:
        """Wait for data on the socket. ``until``: the deadline (monotonic seconds)."""
        self._readable(max(0.0, until - time.monotonic()) * 1000)

    def read_available(self, count: int) -> bool:
        """Read up to ``count`` replies from the received bytes. Returns whether all ``count`` replies are complete."""
        arrived, read = self._arrived, self._reader.reply
        while len(arrived) < count:
            if (reply := read()) is INCOMPLETE:
                return False
            arrived.append(reply)
        return True

    # ── without waiting, also for asyncio ────────────────────────────────────────────────────

    def write(self, payload: bytes) -> int:
        """Send as many bytes of ``payload`` as the socket accepts at once. Returns their number."""
        try:
            return self._sock.send(payload)
        except _WOULD_BLOCK:
            return 0
        except OSError as error:
            raise closed_by_server(self._replied) from error

    def fill(self) -> bool:
        """Receive the bytes that have arrived. Returns whether there were any. Raises redis-py's errors."""
        try:
            data = self._sock.recv(READ_SIZE)
        except _WOULD_BLOCK:
            return False
        except OSError as error:
            raise closed_by_server(self._replied) from error
        if not data:
            raise closed_by_server(self._replied)
        self._replied = True
        self._reader.feed(data)
        return True


def _poll_for(sock: socket.socket, writing: bool) -> Callable[[float], Any]:
    """Return a function that waits until ``sock`` is readable, or writable. Its argument: the longest wait in ms."""
    if (new_poll := getattr(select, "poll", None)) is not None:
        poll = new_poll()
        poll.register(sock.fileno(), select.POLLOUT if writing else select.POLLIN)
        wait: Callable[[float], Any] = poll.poll
        return wait
    reads, writes = ([], [sock]) if writing else ([sock], [])  # eventlet and Windows have no poll
    return lambda ms: any(select.select(reads, writes, [], ms / 1000))
