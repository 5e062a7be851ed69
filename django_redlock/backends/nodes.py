"""Nodes: the places whose word counts as one. Each knows which server is the right one for a key now."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from redis import RedisError
from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.crc import key_slot
from redis.exceptions import AskError, InvalidResponse, MovedError
from redis.retry import Retry
from redis.sentinel import Sentinel

from ..core.fork import on_fork
from ..core.replies import Nonsense
from .patience import reply
from .routes import Route

_HERE = None, b"", b"?"  # in place of a host: the one that was asked
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

    def __init__(
        self,
        hosts: list[tuple[str, int]],
        service: str,
        settings: Mapping[str, Any],
        timeout: float,
        kind: type[Connection] = Connection,
        sentinel_settings: Mapping[str, Any] | None = None,
    ) -> None:
        bounded = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": Retry(NoBackoff(), 0)}
        self._sentinel = Sentinel(hosts, sentinel_kwargs={**(sentinel_settings or {}), **bounded})
        self._service = service
        self._kind = kind
        self._settings = settings
        self._timeout = timeout
        self._route: Route | None = None
        self.label = service
        on_fork(self._forget)

    def known(self, key: bytes | None) -> Route | None:
        return self._route

    def find(self, key: bytes | None) -> Route:
        route = self._route
        if route is None:
            try:
                host, port = self._sentinel.discover_master(self._service)
            finally:
                for each in self._sentinel.sentinels:
                    each.connection_pool.disconnect(inuse_connections=False)
            route = self._route = Route(self._kind, {**self._settings, "host": host, "port": port}, self._timeout)
        return route

    def rethink(self, error: Exception) -> None:
        route = self._route
        self._forget()
        if route is not None:
            route.clear()

    def _forget(self) -> None:
        """Also in a fork's child: its parent may have asked long ago, and here no closed connection would show that."""
        self._route = None

    def routes(self) -> list[Route]:
        return [self.find(None)]

    def used(self) -> list[Route]:
        return [self._route] if self._route else []


class ClusterNode:
    """A Redis Cluster: each slot has a master of its own."""

    fails_over = True

    def __init__(self, hosts: list[tuple[str, int]], settings: Mapping[str, Any], timeout: float) -> None:
        self._settings = settings
        self._timeout = timeout
        self._by_place: dict[tuple[str, int], Route] = {}
        self._slots: dict[int, Route] = {}
        self._turn = 0
        for host, port in hosts:
            self._to(host, port)
        self.label = "cluster"
        on_fork(self._forget)

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
        """Ask any node which one serves what; each time another first, since one may be gone, or not have heard yet."""
        places, turn, start = list(self._by_place.items()), self._turn, time.monotonic()
        problem: Exception = RedisError("no node of the cluster answered")
        try:
            for number in range(turn, turn + len(places)):
                self._turn = number + 1
                (host, _), route = places[number % len(places)]
                try:
                    self._slots = self._told(host, route)
                    return
                except (RedisError, OSError) as error:
                    problem = error
                if time.monotonic() - start > 1.5 * self._timeout:  # two of them hang
                    break
            raise problem
        finally:
            del problem  # its frames would hold it, and the callers their locks

    def _told(self, host: str, route: Route) -> dict[int, Route]:
        connection = route.connect()
        try:
            connection.send_command("CLUSTER", "SLOTS", check_health=False)
            told = reply(connection, time.monotonic() + self._timeout)
        finally:
            route.drop(connection)
        slots: dict[int, Route] = {}
        try:
            for first, last, (where, port, *_), *_ in told:
                there = self._to(host if where in _HERE else where.decode(), port)
                slots.update(dict.fromkeys(range(first, last + 1), there))
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidResponse(str(Nonsense(told))) from error
        if not slots:
            raise RedisError(f"{route.where} belongs to no cluster, or to one without slots")
        return slots

    def _to(self, host: str, port: int) -> Route:
        if (host, port) not in self._by_place:
            self._by_place[host, port] = Route(
                Connection, {**self._settings, "host": host, "port": port}, self._timeout
            )
        return self._by_place[host, port]

    def rethink(self, error: Exception) -> None:
        self._forget()
        for route in self._by_place.values():
            route.clear()

    def _forget(self) -> None:
        """As of Sentinels."""
        self._slots = {}

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
