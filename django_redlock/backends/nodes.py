"""Where a lock lives: a LOCATION becomes a node, and a node knows which server is the right one for a key now."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

from redis import RedisError
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.connection import Connection, parse_url
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError
from redis.retry import Retry
from redis.sentinel import Sentinel

from .routes import BorrowedRoute, Route

_REDIRECTION = re.compile(r"(?:(MOVED|ASK) )?(\d+) (.+):(\d+)")


class Redirection(NamedTuple):
    """The answer of a cluster's node that does not serve the slot (now)."""

    asking: bool
    slot: int
    host: str
    port: int

    @classmethod
    def read(cls, error: Exception) -> Redirection | None:
        """``MOVED 3999 127.0.0.1:6381`` or ``ASK …``, said in the text or by the class of the error; else ``None``."""
        found = _REDIRECTION.fullmatch(str(error))
        if found is None or not (found[1] or isinstance(error, AskError)):
            return None
        asking = found[1] == "ASK" if found[1] else not isinstance(error, MovedError)
        return cls(asking, int(found[2]), found[3], int(found[4]))


class Node(Protocol):
    """One place whose word counts as one. ``fails_over``: when a server is gone another will soon be in its place."""

    label: str
    fails_over: bool

    def known(self, key: bytes | None) -> Route | None:
        """The route for ``key`` if it is known without asking anybody; ``None`` key: any server."""

    def find(self, key: bytes | None) -> Route:
        """The route for ``key``, asking Sentinels or the cluster where needed. Raises redis-py's errors."""

    def rethink(self, error: Exception) -> None:
        """``error`` came back: the server may not be the right one any more."""

    def routes(self) -> list[Route]:
        """Every server that holds keys of its own. Raises redis-py's errors."""

    def used(self) -> list[Route]:
        """The servers that there may be connections to."""


class DirectNode:
    """One server at a fixed address."""

    fails_over = False

    def __init__(self, route: Route, label: str = "") -> None:
        self._route = route
        self.label = label or route.where

    def known(self, key: bytes | None) -> Route | None:
        return self._route

    def find(self, key: bytes | None) -> Route:
        return self._route

    def rethink(self, error: Exception) -> None:
        self._route.clear()  # what was idle is as dead as the one that failed

    def routes(self) -> list[Route]:
        return [self._route]

    used = routes


class SentinelNode:
    """The master that the Sentinels name. Any trouble with it, and they are asked again."""

    fails_over = True

    def __init__(self, hosts: list[tuple[str, int]], service: str, settings: Mapping[str, Any], timeout: float) -> None:
        bounded = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": Retry(NoBackoff(), 0)}
        self._sentinel = Sentinel(hosts, sentinel_kwargs=bounded)
        self._service = service
        self._settings = settings
        self._timeout = timeout
        self._route: Route | None = None
        self.label = service

    def known(self, key: bytes | None) -> Route | None:
        return self._route

    def find(self, key: bytes | None) -> Route:
        route = self._route
        if route is None:
            host, port = self._sentinel.discover_master(self._service)
            route = self._route = Route(Connection, {**self._settings, "host": host, "port": port}, self._timeout)
        return route

    def rethink(self, error: Exception) -> None:
        route, self._route = self._route, None
        if route is not None:
            route.clear()

    def routes(self) -> list[Route]:
        return [self.find(None)]

    def used(self) -> list[Route]:
        return [self._route] if self._route else []


class ClusterNode:
    """A Redis Cluster: each slot has a master of its own."""

    fails_over = True

    def __init__(self, hosts: list[tuple[str, int]], settings: Mapping[str, Any], timeout: float) -> None:
        self._hosts = hosts
        self._settings = settings
        self._timeout = timeout
        self._cluster: RedisCluster | None = None
        self._by_place: dict[tuple[str, int], Route] = {}
        self._slots: dict[int, Route] = {}
        self.label = "cluster"

    def known(self, key: bytes | None) -> Route | None:
        if key is None:
            return next(iter(self._slots.values()), None)
        return self._slots.get(key_slot(key))

    def find(self, key: bytes | None) -> Route:
        if not self._slots:
            self._learn()
        route = self.known(key)
        if route is None:
            raise RedisError("no node of the cluster serves this slot")
        return route

    def _learn(self) -> None:
        """Ask any node that answers which one serves what."""
        error: Exception = RedisError("no node of the cluster answered")
        for host, port in [*self._by_place, *self._hosts]:
            try:
                cluster = RedisCluster(host=host, port=port, require_full_coverage=False, **self._client_settings())
            except (RedisError, OSError) as failure:
                error = failure
                continue
            try:
                self._slots = {
                    slot: self._to(nodes[0].host, nodes[0].port)
                    for slot, nodes in cluster.nodes_manager.slots_cache.items()
                }
            finally:
                cluster.close()
            return
        raise error

    def _client_settings(self) -> dict[str, Any]:
        return {**self._settings, "socket_timeout": self._timeout, "socket_connect_timeout": self._timeout}

    def _to(self, host: str, port: int) -> Route:
        if (host, port) not in self._by_place:
            self._by_place[host, port] = Route(
                Connection, {**self._settings, "host": host, "port": port}, self._timeout
            )
        return self._by_place[host, port]

    def rethink(self, error: Exception) -> None:
        self._slots = {}
        for route in self._by_place.values():
            route.clear()

    def redirected(self, move: Redirection) -> Route:
        """Where ASK or MOVED sends us; MOVED for good."""
        route = self._to(move.host, move.port)
        if not move.asking:
            self._slots[move.slot] = route
        return route

    def routes(self) -> list[Route]:
        self.find(None)
        return list(dict.fromkeys(self._slots.values()))

    def used(self) -> list[Route]:
        return list(self._by_place.values())


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
        if not host:
            raise ValueError(f"expected host:port, not {place!r}")
        hosts.append((host.strip("[]"), int(port or default_port)))
    return hosts, settings


def split_url(url: str) -> tuple[str, str, str]:
    """Scheme, hosts with what to log in with, and path. ``urlsplit`` takes one IPv6 address, not one among several."""
    scheme, _, rest = url.partition("://")
    netloc, _, path = rest.partition("/")
    return scheme, netloc, path


def _sentinel(url: str, timeout: float) -> Node:
    _, netloc, path = split_url(url)
    service, _, db = path.strip("/").partition("/")
    if not service:
        raise ValueError("redis+sentinel://host:port,host:port/SERVICE/DB needs the name of the service")
    hosts, settings = _hosts(netloc, 26379)
    return SentinelNode(hosts, service, {**settings, "db": int(db or 0)}, timeout)


def _cluster(url: str, timeout: float) -> Node:
    return ClusterNode(*_hosts(split_url(url)[1], 7000), timeout)


def _direct(url: str, timeout: float) -> Node:
    settings = parse_url(url)
    return DirectNode(Route(settings.pop("connection_class", Connection), settings, timeout))


def _cache(url: str, timeout: float) -> Node:
    # Django only enters here, where its settings are asked for by name.
    from django_redis import get_redis_connection

    alias = url.removeprefix("cache:")
    client = get_redis_connection(alias)
    return DirectNode(BorrowedRoute(client.connection_pool, timeout), label=url)


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

    Raises ``ValueError`` for a location that is no URL of a kind we know, with what it could be.
    """
    scheme = location.partition(":")[0] if isinstance(location, str) else ""
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}:" if name == "cache" else f"{name}://" for name in _SCHEMES)
        raise ValueError(f"LOCATION begins with one of {known}; got {_without_password(location)!r}")
    try:
        return _SCHEMES[scheme](location, timeout)
    except ValueError as error:
        raise ValueError(f"LOCATION {_without_password(location)!r}: {error}") from error


def _without_password(location: Any) -> Any:
    if not isinstance(location, str) or "@" not in location:
        return location
    head, _, tail = location.rpartition("@")
    return f"{head.partition('://')[0]}://…@{tail}"
