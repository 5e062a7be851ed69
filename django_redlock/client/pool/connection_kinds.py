"""The classes of connections (TCP, TLS, Unix socket), their settings and their timeouts."""

from __future__ import annotations

import inspect
import socket
import struct
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from redis.asyncio.connection import Connection as AsyncTCP
from redis.asyncio.connection import SSLConnection as AsyncTLS
from redis.asyncio.connection import UnixDomainSocketConnection as AsyncUnix
from redis.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection

from ..deadlines import handshake
from .host_names import Resolving

# By default redis-py sends its name and version on each new connection: two round trips, most of the connect time.
_parameters = inspect.signature(AbstractConnection.__init__).parameters
_NO_CLIENT_INFO = dict.fromkeys({"driver_info"} & _parameters.keys() or {"lib_name", "lib_version"})
_PORTABLE = {"host", "port", "path", "db", "username", "password", "client_name", "credential_provider", "protocol"}


class _TCP(Resolving, AsyncTCP):
    pass


class _TLS(Resolving, AsyncTLS):
    pass


ASYNC_KINDS: Mapping[Any, type[Any]] = {  # subclasses before their base
    SSLConnection: _TLS,
    UnixDomainSocketConnection: AsyncUnix,
    Connection: _TCP,
}


def connection_settings(settings: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Return ``settings`` with RESP2 as the default, undecoded replies, and ``timeout`` seconds to connect."""
    fixed = {"socket_connect_timeout": timeout, "decode_responses": False}
    return {"protocol": 2, **_NO_CLIENT_INFO, **settings, **fixed}


def portable_settings(pool: ConnectionPool) -> tuple[type[Connection], dict[str, Any]]:
    """Return both the connection class of ``pool`` and those of its settings that fit connections of other pools.

    The class is redis-py's, also for a pool of valkey-py.
    """
    settings = pool.connection_kwargs
    names = {each.__name__ for each in pool.connection_class.__mro__}  # valkey-py's classes have the same names
    kind = next((kind for kind in ASYNC_KINDS if kind.__name__ in names), Connection)
    return kind, {name: settings[name] for name in settings if name in _PORTABLE or name.startswith("ssl_")}


def kernel_keeps_timeout(kind: type[Connection]) -> bool:
    """Return whether a timeout in the kernel (``SO_RCVTIMEO``) limits reads and writes of ``kind`` connections.

    A timeout in Python costs a poll for each send and each receive; a timeout in the kernel costs nothing. A timeout in
    the kernel has no effect under TLS, which loops on EAGAIN, and under gevent or eventlet, whose sockets never block.
    """
    return not issubclass(kind, SSLConnection) and socket.socket.__module__ == "socket"


def prepare(timeout: float, connection: Any) -> None:
    """Set the timeouts of a new connection, log in and select the database. ``timeout`` is in seconds."""
    if connection.socket_timeout is None:
        whole, part = divmod(timeout, 1)
        bound = struct.pack("@ll", int(whole), int(part * 1e6))
        connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
        connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
    handshake(connection, timeout)


def is_host_name(host: str) -> bool:
    """Return whether ``host`` is a name, not an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


def socket_of(connection: Any) -> socket.socket:
    """Return the socket of a connection. redis-py has no public attribute for the socket."""
    sock: socket.socket = connection._sock
    return sock
