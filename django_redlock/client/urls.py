"""The node for a LOCATION."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote

from redis.connection import Connection, ConnectionPool, parse_url
from redis.sentinel import SentinelConnectionPool

from ..core.flow.replies import unavailable_error
from .discovery import ClusterNode, DirectNode, Node, SentinelNode
from .pool import BorrowedPool, ServerPool, portable_settings
from .redact import redact


def _hosts(netloc: str, default_port: int) -> tuple[list[tuple[str, int]], dict[str, Any]]:
    """The addresses and the credentials in ``user:password@h:p,h:p``."""
    login, at, addresses = netloc.rpartition("@")
    settings: dict[str, Any] = {}
    if at:
        user, _, password = login.partition(":")
        settings = {"username": unquote(user) or None, "password": unquote(password)}
    hosts = []
    for address in map(str.strip, addresses.split(",")):
        host, _, port = address.rpartition(":") if re.search(r":\d+$", address) else (address, "", "")
        if not host or "?" in host:
            raise ValueError(f"expected host:port, not {address!r}")
        hosts.append((_host(host.strip("[]")), int(port or default_port)))
    return hosts, settings


def _host(name: str) -> str:
    """``name``, checked: otherwise its look-up would raise ``UnicodeError`` when the first lock is acquired."""
    try:
        name.encode("idna")
    except UnicodeError as error:
        raise ValueError(f"{name!r} is not a host name") from error
    return name


def split_url(url: str) -> tuple[str, str, str]:
    """Scheme, hosts with credentials, and path. ``urlsplit`` refuses several hosts if one is an IPv6 address."""
    scheme, _, rest = url.partition("://")
    netloc, _, path = rest.partition("/")
    return scheme, netloc, path


_SENTINEL_LOGIN = {"sentinel_username": "username", "sentinel_password": "password"}


def _sentinel(url: str, timeout: float) -> Node:
    url, _, query = url.partition("?")
    _, netloc, path = split_url(url)
    service, _, db = path.strip("/").partition("/")
    if not service:
        raise ValueError("redis+sentinel://host:port,host:port/SERVICE/DB needs the name of the service")
    hosts, settings = _hosts(netloc, 26379)
    login = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := login.keys() - _SENTINEL_LOGIN.keys():
        raise ValueError(f"expected {' or '.join(_SENTINEL_LOGIN)}, not {', '.join(sorted(unknown))}")
    sentinel_settings = {_SENTINEL_LOGIN[name]: value for name, value in login.items()}
    return SentinelNode(hosts, service, {**settings, "db": int(db or 0)}, timeout, sentinel_settings=sentinel_settings)


def _cluster(url: str, timeout: float) -> Node:
    return ClusterNode(*_hosts(split_url(url)[1], 7000), timeout)


def _direct(url: str, timeout: float) -> Node:
    settings = parse_url(url)
    _host(settings.get("host", ""))
    if "max_connections" in settings:
        return DirectNode(BorrowedPool(ConnectionPool.from_url(url), timeout))
    kind = settings.pop("connection_class", Connection)
    try:
        kind(**settings)  # does not connect: it finds a misspelt option now, not when the first lock is acquired
    except TypeError as error:
        raise ValueError(str(error).partition("() ")[2] or error) from error
    return DirectNode(ServerPool(kind, settings, timeout))


def _cache(url: str, timeout: float) -> Node:
    # Imported here: the only location that needs Django.
    from django_redis import get_redis_connection

    pool = get_redis_connection(url.removeprefix("cache:")).connection_pool
    if isinstance(pool, SentinelConnectionPool):  # its connections go to whichever server is the master
        kind, settings = portable_settings(pool)
        sentinel = pool.sentinel_manager
        addresses = [client.connection_pool.connection_kwargs for client in sentinel.sentinels]
        hosts = [(address["host"], address["port"]) for address in addresses]
        return SentinelNode(hosts, pool.service_name, settings, timeout, kind, sentinel.sentinel_kwargs)
    return DirectNode(BorrowedPool(pool, timeout), label=url)


_SCHEMES: dict[str, Callable[[str, float], Node]] = {
    "redis": _direct,
    "rediss": _direct,
    "unix": _direct,
    "redis+sentinel": _sentinel,
    "redis+cluster": _cluster,
    "cache": _cache,
}


def node_for(location: str, timeout: float) -> Node:
    """The node at ``location``. Does not connect; ``timeout``: seconds for each later request to the node.

    Raises ``ValueError`` for an unknown or invalid URL, and ``LockUnavailable`` when no more files may be opened.
    """
    scheme = location.partition(":")[0] if isinstance(location, str) else ""
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}:" if name == "cache" else f"{name}://" for name in _SCHEMES)
        raise ValueError(f"LOCATION begins with one of {known}; got {redact(location)!r}")
    try:
        return _SCHEMES[scheme](location, timeout)
    except ValueError as error:
        raise ValueError(f"LOCATION {redact(location)!r}: {error}") from error
    except OSError as error:  # redis-py reads its own version from a file
        raise unavailable_error("", "the store can't be asked", {redact(location): error}) from error
