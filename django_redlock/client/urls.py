"""Where a lock lives: what LOCATION says becomes a node."""

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
    """``user:password@h:p,h:p`` as addresses and what to log in with."""
    login, at, places = netloc.rpartition("@")
    settings: dict[str, Any] = {}
    if at:
        user, _, password = login.partition(":")
        settings = {"username": unquote(user) or None, "password": unquote(password)}
    hosts = []
    for place in places.split(","):
        host, _, port = place.strip().rpartition(":") if re.search(r":\d+$", place.strip()) else (place.strip(), "", "")
        if not host or "?" in host:
            raise ValueError(f"expected host:port, not {place!r}")
        hosts.append((_host(host.strip("[]")), int(port or default_port)))
    return hosts, settings


def _host(name: str) -> str:
    """``name``, if it can be looked up. Else that would fail with a ``UnicodeError`` when the first lock is wanted."""
    try:
        name.encode("idna")
    except UnicodeError as error:
        raise ValueError(f"{name!r} is no name of a host") from error
    return name


def split_url(url: str) -> tuple[str, str, str]:
    """Scheme, hosts with what to log in with, and path. ``urlsplit`` takes one IPv6 address, not one among several."""
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
    theirs = {_SENTINEL_LOGIN[name]: value for name, value in login.items()}
    return SentinelNode(hosts, service, {**settings, "db": int(db or 0)}, timeout, sentinel_settings=theirs)


def _cluster(url: str, timeout: float) -> Node:
    return ClusterNode(*_hosts(split_url(url)[1], 7000), timeout)


def _direct(url: str, timeout: float) -> Node:
    settings = parse_url(url)
    _host(settings.get("host", ""))
    if "max_connections" in settings:
        return DirectNode(BorrowedPool(ConnectionPool.from_url(url), timeout))
    kind = settings.pop("connection_class", Connection)
    try:
        kind(**settings)  # connects nowhere: a typo is found now, not when the first lock is wanted
    except TypeError as error:
        raise ValueError(str(error).partition("() ")[2] or error) from error
    return DirectNode(ServerPool(kind, settings, timeout))


def _cache(url: str, timeout: float) -> Node:
    # Django only enters here, where its settings are asked for by name.
    from django_redis import get_redis_connection

    pool = get_redis_connection(url.removeprefix("cache:")).connection_pool
    if isinstance(pool, SentinelConnectionPool):  # no pool of connections to one server
        kind, settings = portable_settings(pool)
        known = pool.sentinel_manager
        places = [client.connection_pool.connection_kwargs for client in known.sentinels]
        hosts = [(place["host"], place["port"]) for place in places]
        return SentinelNode(hosts, pool.service_name, settings, timeout, kind, known.sentinel_kwargs)
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
    """The node at ``location``; each question to it may take ``timeout`` seconds. Connects nowhere yet.

    Raises ``ValueError`` for a location that is no URL of a kind we know, with what it could be, and
    ``LockUnavailable`` where the machine has run out of what it takes.
    """
    scheme = location.partition(":")[0] if isinstance(location, str) else ""
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}:" if name == "cache" else f"{name}://" for name in _SCHEMES)
        raise ValueError(f"LOCATION begins with one of {known}; got {redact(location)!r}")
    try:
        return _SCHEMES[scheme](location, timeout)
    except ValueError as error:
        raise ValueError(f"LOCATION {redact(location)!r}: {error}") from error
    except OSError as error:  # redis-py looks up its own version in a file, and there may be no more files to be had
        raise unavailable_error("", "the store can't be asked", {redact(location): error}) from error
