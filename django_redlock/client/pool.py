"""The pool of connections to one server, for threads and event loops.

The pool does not check idle connections, because a check would cost one or two polls. If the server has closed a
connection, the request is repeated on another connection, which is safe because scripts are idempotent.
"""

from __future__ import annotations

import asyncio
import contextlib
import encodings.idna  # noqa: F401  (otherwise `socket` imports this module in the thread of the first look-up)
import math
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any
from weakref import WeakSet

from redis.exceptions import ConnectionError as RedisConnectionError

from ..core.flow.drivers import adrive, drive
from ..core.flow.requests import Flow
from ..core.process.caller import running_loop
from ..core.process.fork import on_fork
from ..core.process.mutex import new_mutex
from .connect import (
    AwaitFuture,
    BoundedCalls,
    connection_settings,
    open_connection,
    takes_unbounded_time,
)
from .connection import AllInUse, Connection
from .shared_connection import SharedConnection, SharedConnections

MAX_IDLE = 64  # idle connections that a pool keeps open
MAX_WAITERS = 64  # connections to a server on which waiters block at the same time; further waiters poll
MAX_IDLE_SECONDS = 60.0  # seconds after which an idle connection is replaced: a firewall may have dropped it
MAX_AGE_SECONDS = 600.0  # seconds after which a connection whose credentials a provider gave is replaced
FULL_CHECK_SECONDS = 0.02  # seconds after which a caller that waits for a slot checks again, if nothing wakes it
NO_LIMIT = 2**31  # redis-py's default for ``max_connections``


class _Slot:
    """The right to use one connection. It ends when the slot is garbage-collected, also after an interrupt."""

    __slots__ = ("__weakref__",)


class _Limit:
    """Limits the number of connections in use to ``size``, at least 2. Each connection in use has a slot."""

    def __init__(self, size: int) -> None:
        self.size = max(2, size)
        self._mutex = new_mutex()
        self._taken: WeakSet[_Slot] = WeakSet()
        self.waiting: deque[Future[None]] = deque()  # of the callers that wait for a slot, in order of arrival

    def take(self, spare: int = 0) -> _Slot | None:
        """Return a slot; ``None`` if no more than ``spare`` slots are free."""
        with self._mutex:
            if len(self._taken) + spare >= self.size:
                return None
            self._taken.add(slot := _Slot())
            return slot

    def wake(self) -> None:
        with contextlib.suppress(IndexError):
            self.waiting.popleft().set_result(None)

    @property
    def reached(self) -> bool:
        return len(self._taken) >= self.size


class ServerPool:
    """The idle connections to one server. Opens a new connection when none is idle, up to ``limit`` connections.

    ``kind``, ``settings``: class and settings of redis-py's connections. ``timeout``: the longest time to connect, and
    to wait for a reply, in seconds. ``where``: the server's address in messages. Idle connections belong to no thread
    and no event loop. ``shared``: the connections that the tasks of an event loop share.
    """

    def __init__(self, kind: type[Any], settings: Mapping[str, Any], timeout: float, limit: int | None = None) -> None:
        self.timeout = timeout
        self.where = str(settings.get("path") or f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}")
        self._kind = kind
        self.uses_tls = any(each.__name__ == "SSLConnection" for each in kind.__mro__)  # redis-py's or valkey-py's
        self._settings = connection_settings(kind, settings)
        checked = self._settings.pop("health_check_interval", 0)  # seconds; 0: never
        self._max_idle_seconds = min(checked or MAX_IDLE_SECONDS, MAX_IDLE_SECONDS)
        # Credentials may end, and the server would then close the connection in the middle of a request.
        self._max_age = MAX_AGE_SECONDS if self._settings.get("credential_provider") is not None else math.inf
        self._max_connections = None if limit is None or limit >= NO_LIMIT else limit
        self.blocks_closed = 0  # blocking commands in a row for which the connection was closed at once
        self.poll_until = 0.0  # monotonic seconds until which no blocking command is sent
        self._unbounded = takes_unbounded_time(settings)
        self._reset()
        on_fork(self._reset)  # the connections and the threads of the calls belong to the parent

    def _reset(self) -> None:
        self._calls = BoundedCalls()
        self.idle_connections: deque[Connection] = deque()
        self._limit = None if self._max_connections is None else _Limit(self._max_connections)
        self.waiters = _Limit(MAX_WAITERS)
        self.shared = SharedConnections(self._open_shared)

    @property
    def is_full(self) -> bool:
        """Whether the connection limit is reached."""
        return self._limit is not None and self._limit.reached

    @property
    def can_block(self) -> bool:
        """Whether blocking commands work. Otherwise, the server or a proxy refuses them, and waiters poll."""
        return time.monotonic() >= self.poll_until

    # ── one caller at a time ─────────────────────────────────────────────────────────────────

    def checkout(self) -> Connection:
        """Return an idle or a new connection, blocking. Waits and raises as `checkout_flow` does."""
        if self._limit is None and (connection := self._pop_idle()) is not None:
            return connection
        return drive(self.checkout_flow(self.timeout), AwaitFuture.perform)

    def checkout_new(self) -> Connection:
        """Return a new connection, or an idle one of a pool with a limit. Raises `AllInUse` at once at the limit."""
        return drive(self.checkout_flow(0.0, idle=self._limit is not None), AwaitFuture.perform)

    def checkout_idle(self) -> Connection | None:
        """Return an idle connection; ``None`` if there is none or the limit is reached."""
        slot = None if self._limit is None else self._limit.take()
        if self._limit is not None and slot is None:
            return None
        if (connection := self._pop_idle()) is not None:
            connection.slot = slot
        return connection

    def checkout_flow(self, seconds: float, *, spare: int = 0, idle: bool = True) -> Flow[Connection]:
        """Return an idle or a new connection. Waits up to ``seconds`` if the connection limit is reached.

        ``spare``: how many connections to leave free, for renewals. ``idle`` ``False``: only a new connection.

        Connecting runs in a thread on an event loop, or if it needs a host name look-up or a credential provider, which
        have no timeout. The caller waits for at most twice ``timeout``; a connection that is ready later becomes idle.
        Raises `AllInUse` if no connection is free in time, redis-py's errors when connecting fails, and
        ``TimeoutError`` when it takes too long.
        """
        slot = yield from self._wait_for_slot(seconds, spare)
        try:
            connection = (self._pop_idle() if idle else None) or (yield from self._open())
            connection.slot = slot
        finally:
            del slot  # now: the traceback of an exception keeps this frame
        return connection

    def checkin(self, connection: Connection) -> None:
        """Return a connection without outstanding replies to the pool. Closes it if `MAX_IDLE` connections are idle."""
        connection.idle_since = time.monotonic()
        slot, connection.slot = connection.slot, None  # the slot is free when the connection is idle
        if len(self.idle_connections) < MAX_IDLE:
            self.idle_connections.append(connection)
        else:
            connection.close()
        del slot
        if self._limit is not None:
            self._limit.wake()

    def discard(self, connection: Connection, compensation: bytes | None = None) -> None:
        """Close a connection, after sending ``compensation`` if the socket accepts it at once.

        ``compensation``: an encoded request that undoes an earlier request.
        """
        if compensation and not connection.is_inherited:
            with contextlib.suppress(RedisConnectionError):
                connection.write(compensation)
        connection.close()
        connection.slot = None
        if self._limit is not None:
            self._limit.wake()

    def _wait_for_slot(self, seconds: float, spare: int = 0) -> Flow[_Slot | None]:
        """Wait up to ``seconds`` for a slot, and return the slot; ``None`` if the pool has no limit.

        ``spare``: the number of slots to leave free.
        """
        until = time.monotonic() + seconds
        while (limit := self._limit) is not None:
            if (slot := limit.take(spare)) is not None:
                return slot
            if time.monotonic() >= until:
                raise AllInUse(f"all {limit.size} connections are in use")
            freed = Future[None]()
            limit.waiting.append(freed)
            try:
                yield AwaitFuture(freed, FULL_CHECK_SECONDS)
            finally:
                with contextlib.suppress(ValueError):
                    limit.waiting.remove(freed)
        return None

    def _pop_idle(self) -> Connection | None:
        while True:
            try:
                connection = self.idle_connections.pop()
            except IndexError:
                return None
            now = time.monotonic()
            if now - connection.idle_since < self._max_idle_seconds and now - connection.opened_at <= self._max_age:
                return connection
            connection.close()

    def _open(self) -> Flow[Connection]:
        if not self._unbounded and running_loop() is None:
            return self._connect()
        try:
            return (yield from self._calls.run(self._connect, 2 * self.timeout, self.checkin))
        except TimeoutError:
            if (connection := self._pop_idle()) is None:
                raise
            return connection

    def _connect(self) -> Connection:
        return open_connection(self._kind, self._settings, self.timeout)

    async def _open_shared(self) -> SharedConnection:
        connection = await adrive(self.checkout_flow(self.timeout, spare=1), AwaitFuture.aperform)
        shared = SharedConnection(connection, self.timeout, self.discard)
        if self._max_age < math.inf:
            left = connection.opened_at + self._max_age - time.monotonic()
            asyncio.get_running_loop().call_later(left, shared.retire)
        return shared

    # ── end ──────────────────────────────────────────────────────────────────────────────────

    def clear(self) -> None:
        """Close all idle connections. Each event loop closes its own connection in its next round."""
        with contextlib.suppress(IndexError):  # also while other threads use the deque
            while True:
                self.idle_connections.pop().close()
        self.shared.retire()
