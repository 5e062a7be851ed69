"""The pool of connections to one server.

The pool hands out a connection without a check, because a check would cost one or two polls. A request on a connection
that the server has closed fails. The request is then repeated on another connection, because scripts are idempotent.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  (otherwise `socket` imports this module in the thread of the first look-up)
import weakref
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.retry import Retry

from ...core.process.fork import on_fork
from ..deadlines import LoopDeadline
from .call_timeouts import BoundedCalls, redis_errors
from .connection_kinds import ASYNC_KINDS, connection_settings, is_host_name, kernel_keeps_timeout, prepare, socket_of
from .loop_connections import LoopPool, OpenConnections, drained
from .shared_connection import SharedConnection

MAX_IDLE = 64  # idle connections that a pool keeps open


class ServerPool:
    """The idle connections to one server. Opens new connections when none is idle.

    ``kind`` and ``settings`` are the class and the settings of the connections. ``timeout`` limits connecting, and the
    wait for a reply, in seconds. ``where`` is the server's address in messages.
    """

    def __init__(self, kind: type[Connection], settings: Mapping[str, Any], timeout: float) -> None:
        self.timeout = timeout
        self.where = str(settings.get("path") or f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}")
        self._kind = kind
        self._settings = connection_settings(settings, timeout)
        self._closings = 0  # calls of `close` and `aclear`; each connection stores the number at its start
        self._calls = BoundedCalls()
        is_name = not settings.get("path") and is_host_name(settings.get("host", "localhost"))
        self._unbounded = is_name or settings.get("credential_provider") is not None  # connecting has no timeout
        self._reset()
        on_fork(self.abandon)

    def _reset(self) -> None:
        self.idle_connections: deque[Connection] = deque()
        self._loop_pool = LoopPool()
        # Closes the connections of a pool that is never closed: the garbage collector may reach a socket first.
        self._finalizer = weakref.finalize(self, disconnect_all, self.idle_connections)
        self._finalizer.atexit = False

    @property
    def blocking_pool(self) -> ServerPool:
        """The pool for a request that blocks on the server."""
        return self

    @property
    def fanout_pool(self) -> ServerPool:
        """The pool for a request to several nodes."""
        return self

    @property
    def is_full(self) -> bool:
        """True if no more connections may be opened."""
        return False

    # ── blocking ─────────────────────────────────────────────────────────────────────────────

    def checkout(self) -> Connection:
        """Return an idle or a new connection. Raises redis-py's errors when connecting fails."""
        return self.idle() or self.connect()

    def idle(self) -> Connection | None:
        """Return an idle connection; ``None`` if there is none."""
        try:
            return self.idle_connections.pop()
        except IndexError:
            return None

    def connect(self) -> Connection:
        """Return a new connection. Raises redis-py's errors, and ``TimeoutError`` when connecting takes too long.

        The look-up of a host name and a credential provider have no timeout, so the call runs in a thread for twice
        ``timeout`` at most. A connection that is ready later becomes idle, and may be the result of a later call whose
        own connection is not ready in time.
        """
        if not self._unbounded:
            return self._connect()
        try:
            return self._calls.run(self._connect, 2 * self.timeout, self.checkin)
        except TimeoutError:
            if (connection := self.idle()) is None:
                raise
            return connection

    def _connect(self) -> Connection:
        settings = {**self._settings, "socket_timeout": None if kernel_keeps_timeout(self._kind) else self.timeout}
        # `partial` has no reference to the pool: a connection must not keep its pool alive.
        on_connect = partial(prepare, self.timeout)
        connection = self._kind(**settings, retry=Retry(NoBackoff(), 0), redis_connect_func=on_connect)
        connection.__dict__["redlock_closings"] = self._closings
        connection.connect()
        return connection

    def checkin(self, connection: Connection) -> None:
        """Return a connection without outstanding replies to the pool.

        Closes the connection if it was opened before the last `close`, or if `MAX_IDLE` connections are idle.
        """
        if len(self.idle_connections) < MAX_IDLE and connection.__dict__["redlock_closings"] == self._closings:
            self.idle_connections.append(connection)
            if connection.__dict__["redlock_closings"] != self._closings:  # closed meanwhile
                disconnect_all(self.idle_connections)
        else:
            connection.disconnect()

    def cause_of(self, error: Exception, connection: Connection) -> Exception:
        """Return the error that made a request on ``connection`` fail, which is ``error`` itself in most pools."""
        del connection
        return error

    def discard(self, connection: Connection, compensation: bytes | None = None) -> None:
        """Close a connection.

        First sends ``compensation``, an encoded request that undoes an earlier request, if the socket takes it at once.
        """
        sock = socket_of(connection)
        if compensation and sock is not None:
            try:
                sock.setblocking(False)
                sock.send(compensation)
            except OSError:
                pass
        connection.disconnect()

    # ── asyncio ──────────────────────────────────────────────────────────────────────────────

    async def acheckout(self) -> Any:
        """`checkout` for asyncio."""
        connections = await self._loop_pool.open()
        return connections.idle.pop() if connections.idle else await self._aconnect()

    async def _aconnect(self) -> Any:
        unbounded = {"socket_timeout": None, "socket_connect_timeout": None, "retry": AsyncRetry(NoBackoff(), 0)}
        connection = ASYNC_KINDS[self._kind](**{**self._settings, **unbounded, "protocol": 2})
        connection.__dict__.update(redlock_closings=self._closings, redlock_timeout=self.timeout)
        try:
            with redis_errors():
                async with LoopDeadline(2 * self.timeout if self._unbounded else self.timeout):
                    await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def acheckin(self, connection: Any) -> None:
        """`checkin` for asyncio."""
        connections = self._loop_pool.current()
        if (
            connections is not None
            and len(connections.idle) < MAX_IDLE
            and connection.__dict__["redlock_closings"] == self._closings
        ):
            connections.idle.append(connection)
        else:
            await connection.disconnect(nowait=True)

    async def adiscard(self, connection: Any, compensation: bytes | None = None) -> None:
        """`discard` for asyncio."""
        writer = connection._writer
        if compensation and writer is not None and not writer.is_closing():
            writer.write(compensation)
        await connection.disconnect(nowait=True)

    def shared(self) -> SharedConnection | None:
        """Return the connection that the tasks of the running loop share; ``None`` if none accepts requests."""
        connections = self._loop_pool.current()
        shared = None if connections is None else connections.shared
        return None if shared is None or shared.retired else shared

    async def ashared(self) -> SharedConnection:
        """Return the connection that the tasks of the running loop share. Opens one if none accepts requests."""
        connections = await self._loop_pool.open()
        return self.shared() or await connections.open_shared(partial(self._open_shared, connections))

    async def _open_shared(self, connections: OpenConnections) -> SharedConnection:
        closings = self._closings
        shared = SharedConnection(await self._aconnect(), self.timeout)
        if closings != self._closings or self._loop_pool.current() is not connections:  # closed meanwhile
            asyncio.get_running_loop().call_soon(shared.retire)
        return shared

    # ── end ──────────────────────────────────────────────────────────────────────────────────

    def clear(self) -> None:
        """Close all idle connections. Each event loop closes its own connections."""
        disconnect_all(self.idle_connections)
        self._loop_pool.clear()

    def close(self) -> None:
        """Close all idle connections now, and the connections in use when they are checked in."""
        self._closings += 1
        self.clear()

    def closed_since(self, connection: Any) -> bool:
        """Return whether the pool was closed after ``connection`` was opened."""
        return bool(connection.__dict__["redlock_closings"] != self._closings)

    async def aclear(self) -> None:
        """Close the running loop's idle connections, and all connections in use when they are checked in."""
        self._closings += 1
        await self._loop_pool.aclear()

    def abandon(self) -> None:
        """Drop all connections without closing them.

        Called in the child of a fork, because the parent still uses the connections.
        """
        self._finalizer.detach()
        self._reset()


def disconnect_all(connections: deque[Connection]) -> None:
    """Close all ``connections``, and remove them from the deque."""
    for connection in drained(connections):
        connection.disconnect()
