"""Uses the connection pool of a Django cache, such as a django-redis cache, and respects its settings and its limit."""

from __future__ import annotations

import inspect
import select
import weakref
from contextlib import suppress
from functools import partial
from typing import Any

from redis.connection import Connection, ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError

from ...core.process.mutex import new_mutex
from ..error_context import timed_out
from .call_timeouts import redis_errors
from .connection_kinds import portable_settings, socket_of
from .server_pool import ServerPool

# Up to redis-py 5.2 `get_connection` requires a command's name and ignores the name. Later versions warn about it.
_parameter = inspect.signature(ConnectionPool.get_connection).parameters.get("command_name")
MAX_BORROWS = 3  # connections that are tried, when the owner of the pool closes them
_CLOSED = "the owner of the pool has closed the connection"
_COMMAND_NAME = ("_",) if _parameter is not None and _parameter.default is inspect.Parameter.empty else ()


class AllInUse(RedisConnectionError):
    """Raised by a pool when all connections that it may open are in use."""


class LimitedPool(ServerPool):
    """A pool that opens its own connections, up to the limit of ``pool`` and with its settings.

    ``timeout`` limits connecting, and the wait for a reply, in seconds.
    """

    def __init__(self, pool: ConnectionPool, timeout: float) -> None:
        self._limit = pool.max_connections
        super().__init__(*portable_settings(pool), timeout)

    def _reset(self) -> None:
        super()._reset()
        self._mutex = new_mutex()
        self._opened: weakref.WeakSet[Any] = weakref.WeakSet()
        self._connecting = 0

    @property
    def is_full(self) -> bool:
        with self._mutex:
            return self._connecting + sum(socket_of(each) is not None for each in self._opened) >= self._limit

    def connect(self) -> Connection:
        """Return a new connection. Raises `AllInUse` if the limit is reached."""
        with self._mutex:
            if self.is_full:
                raise AllInUse(f"all {self._limit} connections are in use")
            self._connecting += 1
        connection = None
        try:
            connection = super().connect()
        finally:
            with self._mutex:
                self._connecting -= 1
                if connection is not None:
                    self._opened.add(connection)
        return connection


class BorrowedPool(ServerPool):
    """A pool that hands out the connections of another library's pool, the borrowed pool. There are two exceptions.

    Requests that block use a pool without a limit, because waiters could use up the borrowed pool, and no lease could
    be renewed. Requests to several nodes use a `LimitedPool`, because the borrowed pool may connect before it hands out
    a connection, and the requests to all nodes would wait. ``timeout`` limits connecting, and the wait for a reply, in
    seconds.
    """

    def __init__(self, pool: ConnectionPool, timeout: float) -> None:
        super().__init__(*portable_settings(pool), timeout)
        self._borrowed = pool
        self._blocking_pool = ServerPool(*portable_settings(pool), timeout)
        self._fanout_pool = LimitedPool(pool, timeout)

    @property
    def blocking_pool(self) -> ServerPool:
        return self._blocking_pool

    @property
    def fanout_pool(self) -> ServerPool:
        return self._fanout_pool

    def clear(self) -> None:
        super().clear()
        self._blocking_pool.clear()
        self._fanout_pool.clear()

    def close(self) -> None:
        super().close()
        self._blocking_pool.close()
        self._fanout_pool.close()

    def idle(self) -> Connection:
        return self.connect()

    def connect(self) -> Connection:
        """Return a connection of the borrowed pool.

        Raises redis-py's errors, and ``TimeoutError`` after twice ``timeout``, the timeout of this pool.
        """
        for _ in range(MAX_BORROWS):
            connection = self._borrow()
            try:
                socket_of(connection).settimeout(self.timeout)
            except (AttributeError, OSError):  # closed meanwhile
                self._borrowed.release(connection)
            else:
                return connection
        raise RedisConnectionError(_CLOSED)

    def _borrow(self) -> Connection:
        pool = self._borrowed
        if _has_idle(pool):
            with redis_errors():
                return pool.get_connection(*_COMMAND_NAME)
        # The pool connects or waits for a connection, as long as its settings allow.
        return self._calls.run(partial(pool.get_connection, *_COMMAND_NAME), 2 * self.timeout, pool.release)

    def cause_of(self, error: Exception, connection: Connection) -> Exception:
        """Return ``error``, or redis-py's ``ConnectionError`` if the owner of the pool has closed ``connection``.

        A connection that is closed in the middle of a request may raise any error.
        """
        closed = socket_of(connection) is None and type(error) is not RedisConnectionError and not timed_out(error)
        return RedisConnectionError(_CLOSED) if closed else error

    def checkin(self, connection: Connection) -> None:
        with suppress(AttributeError, OSError):  # closed meanwhile
            socket_of(connection).settimeout(connection.socket_timeout)
        self._borrowed.release(connection)

    def discard(self, connection: Connection, compensation: bytes | None = None) -> None:
        super().discard(connection, compensation)
        self._borrowed.release(connection)


def _has_idle(pool: Any) -> bool:
    """Return whether the next connection that ``pool`` hands out is connected, so that the checkout does not block.

    Reads private attributes, because redis-py has no public method.
    """
    idle: Any = getattr(pool, "_available_connections", None) or getattr(getattr(pool, "pool", None), "queue", ())
    poll = select.poll()
    try:
        poll.register(socket_of(idle[-1]), select.POLLIN)
    except (IndexError, TypeError, AttributeError, ValueError):  # no idle connection, or not connected
        return False
    return not poll.poll(0)  # a readable idle connection was closed by the server, and the pool connects again
