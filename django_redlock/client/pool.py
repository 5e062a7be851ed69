"""Connections: redis-py's own, kept open, bounded in time, handed out without the checks that cost a round of polls.

That a connection has been closed is found when it is used; scripts are idempotent, so they are simply sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import encodings.idna  # noqa: F401  (or `socket` imports it in the thread that looks up the first name)
import inspect
import select
import socket
import struct
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import partial
from ipaddress import ip_address
from typing import Any

from redis.asyncio.connection import Connection as AsyncTCP
from redis.asyncio.connection import SSLConnection as AsyncTLS
from redis.asyncio.connection import UnixDomainSocketConnection as AsyncUnix
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from ..core.fork import on_fork
from .bounded_calls import BoundedCalls
from .deadlines import handshake
from .host_names import Resolving
from .loop_deadlines import LoopDeadline

# Up to redis-py 5.2 a pool wants to hear a command's name, and makes nothing of it; later ones warn of that.
_named = inspect.signature(ConnectionPool.get_connection).parameters.get("command_name")
_NAME = ("_",) if _named is not None and _named.default is inspect.Parameter.empty else ()
# redis-py tells a server its name and version: two round trips, and most of the time that connecting takes it.
_told = inspect.signature(AbstractConnection.__init__).parameters
_UNTOLD = dict.fromkeys({"driver_info"} & _told.keys() or {"lib_name", "lib_version"})
MAX_IDLE = 64  # connections that a route keeps open while nobody uses them
_LoopIdle = tuple[
    deque[Any], AsyncGenerator[None, None]
]  # a loop's connections, and what closes them when the loop ends


class _TCP(Resolving, AsyncTCP):
    pass


class _TLS(Resolving, AsyncTLS):
    pass


_ASYNC = {  # the special ones first
    SSLConnection: _TLS,
    UnixDomainSocketConnection: AsyncUnix,
    Connection: _TCP,
}


class ServerPool:
    """The way to one server: the connections to it that are idle, and how to make another."""

    def __init__(self, kind: type[Connection], settings: Mapping[str, Any], timeout: float) -> None:
        self.timeout = timeout
        self.where = str(settings.get("path") or f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}")
        self._kind = kind
        self._settings = {
            "protocol": 2,
            **_UNTOLD,
            **settings,
            "socket_connect_timeout": timeout,
            "decode_responses": False,
        }
        self._closings = 0
        self._calls = BoundedCalls()
        self._is_named = not settings.get("path") and _is_name(settings.get("host", "localhost"))
        self._reset()
        on_fork(self.abandon)

    def _reset(self) -> None:
        self.idle_connections: deque[Connection] = deque()
        self._by_loop: weakref.WeakKeyDictionary[Any, _LoopIdle] = weakref.WeakKeyDictionary()
        # Of what nobody closed: the garbage collector could come to a socket before it comes to its connection.
        self._end = weakref.finalize(self, _disconnect, self.idle_connections)
        self._end.atexit = False

    @property
    def blocking_pool(self) -> ServerPool:
        """The way for a request that blocks."""
        return self

    @property
    def fanout_pool(self) -> ServerPool:
        """The way for a request to several nodes."""
        return self

    @property
    def is_full(self) -> bool:
        """Whether there may be no more connections."""
        return False

    # ── blocking ─────────────────────────────────────────────────────────────────────────────

    def checkout(self) -> Connection:
        """A connection. Raises what redis-py raises when it can't connect."""
        return self.idle() or self.connect()

    def idle(self) -> Connection | None:
        """A connection that is open already."""
        try:
            return self.idle_connections.pop()
        except IndexError:
            return None

    def connect(self) -> Connection:
        """A new connection. Raises what redis-py raises when it can't connect, ``TimeoutError`` when that takes long.

        The look-up of a host's name has no limit. One that comes too late is kept for the next request.
        """
        return self._calls.run(self._connect, 2 * self.timeout, self.checkin) if self._is_named else self._connect()

    def _connect(self) -> Connection:
        prepare = partial(_on_connect, self.timeout)  # knows no route: a connection must not keep its own alive
        connection = self._kind(**self._bounded(), retry=Retry(NoBackoff(), 0), redis_connect_func=prepare)
        connection.__dict__["redlock_closings"] = self._closings
        connection.connect()
        return connection

    def checkin(self, connection: Connection) -> None:
        """Keep a connection on which no reply is outstanding, unless it is from before the last `close`."""
        if len(self.idle_connections) < MAX_IDLE and connection.__dict__["redlock_closings"] == self._closings:
            self.idle_connections.append(connection)
        else:
            connection.disconnect()

    def discard(self, connection: Connection, compensation: bytes | None = None) -> None:
        """Close a connection; ``last_words`` go out behind what was sent, as far as the socket takes them now."""
        sock = connection._sock
        if compensation and sock is not None:
            try:
                sock.setblocking(False)
                sock.send(compensation)
            except OSError:
                pass
        connection.disconnect()

    def _bounded(self) -> dict[str, Any]:
        # A Python socket timeout costs a poll for each send and each receive; the kernel's costs nothing. It is of no
        # use where the socket is never blocking: under TLS, which loops on EAGAIN, and under gevent or eventlet.
        native = not issubclass(self._kind, SSLConnection) and socket.socket.__module__ == "socket"
        return {**self._settings, "socket_timeout": None if native else self.timeout}

    # ── asyncio ──────────────────────────────────────────────────────────────────────────────

    async def acheckout(self) -> Any:
        """`take` on the running loop; connections belong to their loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            idle: deque[Any] = deque()
            self._by_loop[loop] = idle, (keeper := _close_with_loop(idle))
            await anext(keeper)
        try:
            return self._by_loop[loop][0].pop()
        except IndexError:
            pass
        unbounded = {"socket_timeout": None, "socket_connect_timeout": None, "retry": AsyncRetry(NoBackoff(), 0)}
        connection = _ASYNC[self._kind](**{**self._settings, **unbounded})
        connection.__dict__["redlock_closings"] = self._closings
        try:
            async with LoopDeadline(self.timeout):
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def acheckin(self, connection: Any) -> None:
        """`give` on the running loop."""
        idle = self._by_loop.get(asyncio.get_running_loop())
        if idle is not None and len(idle[0]) < MAX_IDLE and connection.__dict__["redlock_closings"] == self._closings:
            idle[0].append(connection)
        else:
            await connection.disconnect(nowait=True)

    async def adiscard(self, connection: Any, compensation: bytes | None = None) -> None:
        """`discard` on the running loop."""
        writer = connection._writer
        if compensation and writer is not None and not writer.is_closing():
            writer.write(compensation)
        await connection.disconnect(nowait=True)

    # ── end ──────────────────────────────────────────────────────────────────────────────────

    def clear(self) -> None:
        """Close all idle connections, those of event loops as soon as these get round to it."""
        _disconnect(self.idle_connections)
        for loop in filter(None, [ref() for ref in self._by_loop.keyrefs()]):
            if (idle := self._by_loop.get(loop)) and (doomed := list(_emptied(idle[0]))):
                with contextlib.suppress(RuntimeError):  # the loop has ended, and has closed them
                    loop.call_soon_threadsafe(_close_all, doomed)

    def close(self) -> None:
        """`clear`, and those that are in use now are closed when they are given back."""
        self._closings += 1
        self.clear()

    async def aclear(self) -> None:
        """Close the running loop's idle connections, and those that are in use now when they are given back."""
        self._closings += 1
        idle = self._by_loop.pop(asyncio.get_running_loop(), None)
        if idle is not None:
            await idle[1].aclose()

    def abandon(self) -> None:
        """Drop the connections without a word: after fork() they are the parent's."""
        self._end.detach()
        self._reset()


class AllInUse(RedisConnectionError):
    """There may be no more connections now."""


class LimitedPool(ServerPool):
    """Connections of our own with the settings of a pool, and as many at most as that may have."""

    def __init__(self, pool: ConnectionPool, timeout: float) -> None:
        self._limit = pool.max_connections
        super().__init__(*portable_settings(pool), timeout)

    def _reset(self) -> None:
        super()._reset()
        self._mutex = threading.RLock()
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        self._connecting = 0

    @property
    def is_full(self) -> bool:
        with self._mutex:
            return self._connecting + sum(socket_of(each) is not None for each in self._made) >= self._limit

    def connect(self) -> Connection:
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
                    self._made.add(connection)
        return connection


class BorrowedPool(ServerPool):
    """Connections of somebody else's pool, a django-redis cache's: its limits and its settings hold.

    Not for those who wait: when they had all that a pool may have, no lease could be renewed. Nor for requests to
    several nodes: a pool connects when it is asked for a connection, and the other nodes would wait for that.
    """

    def __init__(self, pool: ConnectionPool, timeout: float) -> None:
        super().__init__(*portable_settings(pool), timeout)
        self._borrowed = pool
        self._blocking_pool = ServerPool(*portable_settings(pool), timeout)
        self._for_many = LimitedPool(pool, timeout)

    @property
    def blocking_pool(self) -> ServerPool:
        return self._blocking_pool

    @property
    def fanout_pool(self) -> ServerPool:
        return self._for_many

    def clear(self) -> None:
        super().clear()
        self._blocking_pool.clear()
        self._for_many.clear()

    def close(self) -> None:
        super().close()
        self._blocking_pool.close()
        self._for_many.close()

    def idle(self) -> Connection:
        return self.connect()

    def connect(self) -> Connection:
        pool = self._borrowed
        if _has_idle(pool):
            connection = pool.get_connection(*_NAME)
        else:  # it connects, or waits for one that is in use, as long as its own settings say
            connection = self._calls.run(partial(pool.get_connection, *_NAME), 2 * self.timeout, pool.release)
        socket_of(connection).settimeout(self.timeout)
        return connection

    def checkin(self, connection: Connection) -> None:
        socket_of(connection).settimeout(connection.socket_timeout)
        self._borrowed.release(connection)

    def discard(self, connection: Connection, compensation: bytes | None = None) -> None:
        super().discard(connection, compensation)
        self._borrowed.release(connection)


def _has_idle(pool: Any) -> bool:
    """Whether the next connection that a pool hands out is connected: then it does so at once.

    redis-py has no public way to see that. Where this one is closed, or sees too little, a checkout costs a thread.
    """
    idle: Any = getattr(pool, "_available_connections", None) or getattr(getattr(pool, "pool", None), "queue", ())
    poll = select.poll()
    try:
        poll.register(idle[-1]._sock, select.POLLIN)
    except (IndexError, TypeError, AttributeError, ValueError):  # there is none, or it isn't connected
        return False
    return not poll.poll(0)  # something to read: it was closed by the server, and will be connected again


def _is_name(host: str) -> bool:
    """Whether a host has to be looked up."""
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


def socket_of(connection: Any) -> socket.socket:
    sock: socket.socket = connection._sock  # redis-py has no public way to it
    return sock


_PORTABLE = {"host", "port", "path", "db", "username", "password", "client_name", "credential_provider", "protocol"}


def portable_settings(pool: ConnectionPool) -> tuple[type[Connection], dict[str, Any]]:
    """What other connections can take over of a pool's: the kind and the settings."""
    settings = pool.connection_kwargs
    names = {each.__name__ for each in pool.connection_class.__mro__}  # valkey-py's classes have the same names
    kind = next((kind for kind in _ASYNC if kind.__name__ in names), Connection)
    return kind, {name: settings[name] for name in settings if name in _PORTABLE or name.startswith("ssl_")}


def _on_connect(timeout: float, connection: Any) -> None:
    if connection.socket_timeout is None:
        whole, part = divmod(timeout, 1)
        bound = struct.pack("@ll", int(whole), int(part * 1e6))
        connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
        connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
    handshake(connection, timeout)


def _disconnect(idle: deque[Connection]) -> None:
    for connection in _emptied(idle):
        connection.disconnect()


def _emptied(idle: deque[Any]) -> Iterator[Any]:
    while True:
        try:
            yield idle.pop()
        except IndexError:
            return


def _close_all(doomed: list[Any]) -> None:
    for connection in doomed:
        connection._close()


async def _close_with_loop(idle: deque[Any]) -> AsyncGenerator[None, None]:
    # A loop that ends closes the asynchronous generators which were begun on it, and this one then the connections.
    try:
        yield
    finally:
        # TLS has a last word to say and to hear: the loop must not end before.
        await asyncio.gather(*(connection.disconnect() for connection in idle), return_exceptions=True)
        idle.clear()
