"""Opens connections in a limited time. redis-py does TLS, AUTH, HELLO, CLIENT SETNAME and SELECT.

One private name is used, which redis-py's parsers also use: ``Connection._sock`` (redis-py 5.2 to 8.1, valkey-py 6.0 to
6.2).
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeVar

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, SSLConnection, UnixDomainSocketConnection
from redis.connection import Connection as TCPConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.retry import Retry

from ..core.flow.requests import Flow
from ..core.process import fork, threads
from .connection import Connection

T = TypeVar("T")
MAX_OVERDUE = 8  # overdue calls at the same time; further calls fail at once until one of them has ended
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 3}  # in seconds; dropped connections are found
CONNECTION_KINDS = SSLConnection, UnixDomainSocketConnection, TCPConnection  # subclasses before their base
PARAMETERS = {
    name for kind in (AbstractConnection, *CONNECTION_KINDS) for name in inspect.signature(kind.__init__).parameters
}
# By default redis-py sends its name and version on each new connection: two round trips, most of the connect time.
_NO_CLIENT_INFO: dict[str, Any] = dict.fromkeys({"driver_info"} & PARAMETERS or {"lib_name", "lib_version"})


class _Handshake:
    """The parser of a new redis-py connection, with one deadline for all replies: ``timeout`` seconds in all.

    ``connection`` is the `Connection` made from redis-py's. A caller that takes it must set it to ``None``.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._until = 0.0
        self.connection: Connection | None = None

    def on_connect(self, source: Any) -> None:
        self._until = time.monotonic() + self._timeout
        self.connection = Connection(source, source._sock, self._timeout)

    def on_disconnect(self) -> None:
        pass

    def read_response(self, **_: Any) -> Any:
        if self.connection is None:
            raise RedisConnectionError("not connected")
        (reply,) = self.connection.receive(1, self._until)
        return reply


def open_connection(kind: type[Any], settings: Mapping[str, Any], timeout: float) -> Connection:
    """Connect, log in and select the database, with a connection of redis-py's class ``kind``.

    The connect and the handshake may take ``timeout`` seconds each. Raises redis-py's errors and ``OSError``.
    """
    handshake = _Handshake(timeout)
    fixed = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": Retry(NoBackoff(), 0)}
    source = kind(**{**settings, **fixed}, parser_class=lambda **_: handshake)
    try:
        source.connect()
    except BaseException:
        source.disconnect()
        raise
    finally:
        connection, handshake.connection = handshake.connection, None
    return connection or Connection(source, source._sock, timeout)


def connection_settings(kind: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with RESP2, and with this package's defaults: no client info, TCP keepalive."""
    defaults = dict(_NO_CLIENT_INFO)
    if not issubclass(kind, UnixDomainSocketConnection):
        options = {getattr(socket, name): value for name, value in KEEPALIVE.items() if hasattr(socket, name)}
        defaults |= {"socket_keepalive": True, "socket_keepalive_options": options}
    return {**defaults, **settings, "protocol": 2}


def takes_unbounded_time(settings: Mapping[str, Any]) -> bool:
    """Return whether connecting has a step without a time limit: a look-up of a host name, or a credential provider."""
    if settings.get("credential_provider") is not None or settings.get("redis_connect_func") is not None:
        return True
    if settings.get("path"):
        return False
    try:
        ip_address(settings.get("host", "localhost"))
    except ValueError:
        return True
    return False


class AwaitFuture(NamedTuple):
    """A request of a flow (`core.flow`): wait until ``future`` is done, for at most ``seconds``."""

    future: Future[Any]
    seconds: float

    def perform(self) -> None:
        wait([self.future], self.seconds)

    async def aperform(self) -> None:
        future = asyncio.wrap_future(self.future)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark as retrieved
        await asyncio.wait([future], timeout=self.seconds)


class BoundedCalls:
    """Runs each call in a separate thread, and stops waiting after a timeout. An overdue call continues in its thread.

    While `MAX_OVERDUE` calls are overdue, further calls fail at once.
    """

    def __init__(self) -> None:
        self._limits: dict[Future[Any], float] = {}  # call under way -> its time limit; kept by the call's thread

    def run(self, call: Callable[[], T], seconds: float, late: Callable[[T], object]) -> Flow[T]:
        """Run ``call``, and return its result or raise its exception: redis-py's errors or ``OSError``.

        Raises ``TimeoutError`` after ``seconds``, or at once if `MAX_OVERDUE` calls are overdue. If the call returns
        later, ``late`` is called with the result. Raises redis-py's ``ConnectionError`` if no thread can be started.
        """
        now, future = time.monotonic(), Future[T]()
        if sum(limit < now for limit in list(self._limits.values())) >= MAX_OVERDUE:
            raise TimeoutError("no reply in time, nor to earlier requests")
        args = future, now + seconds, call, late
        if threads.start(threads.Kind.CALL, fork.run_postponing, self._call, *args) is None:
            raise RedisConnectionError("can't start new thread")
        try:
            yield AwaitFuture(future, seconds)
        finally:
            late_or_never = future.cancel()
        if late_or_never:
            raise TimeoutError("no reply in time")
        return future.result()

    def _call(self, future: Future[T], limit: float, call: Callable[[], T], late: Callable[[T], object]) -> None:
        self._limits[future] = limit
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001  (raised where the result is waited for)
            error = raised
            if not isinstance(raised, RedisError | OSError):  # of a credential provider
                error = RedisConnectionError(f"{type(raised).__name__}: {raised}")
                error.__cause__ = raised
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(result)
            else:
                late(result)
        finally:
            del self._limits[future]
