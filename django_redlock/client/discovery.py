"""Nodes: the places whose word counts as one. Each knows which server is the right one for a key now."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from redis import Redis, RedisError
from redis.connection import Connection
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, InvalidResponse, MovedError

from ..core.flow.replies import UnreadableReply
from ..core.fork import on_fork
from .deadlines import read_replies
from .first_answer import FirstAnswer, SecondBest
from .pool import ServerPool, portable_settings
from .resp import encode_command

_HERE = None, b"", b"?"  # in place of a host: the one that was asked
_REDIRECTION = re.compile(r"(?:(MOVED|ASK) )?(\d+) (.*):(\d+)")
ASKED = 8  # servers of a Cluster that are asked for its map, beside the addresses in LOCATION
Slots = list["ServerPool | None"]  # slot -> the server that serves it


class Redirection(NamedTuple):
    """The answer of a cluster's node that does not serve the slot (now). An empty ``host`` is that of this node."""

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
        return cls(asking, int(found[2]), "" if found[3] == "?" else found[3], int(found[4]))


class Node(Protocol):
    """One place whose word counts as one. ``fails_over``: when a server is gone another will soon be in its place."""

    label: str
    fails_over: bool

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        """The route for ``key`` if it is known without asking anybody; ``None`` key: any server."""

    def find_pool(self, key: bytes | None) -> ServerPool:
        """The route for ``key``, asking Sentinels or the cluster where needed. Raises redis-py's errors."""

    async def afind_pool(self, key: bytes | None) -> ServerPool:
        """`find_pool` on the running event loop."""

    def invalidate(self, error: Exception, where: str = "") -> None:
        """``error`` came back from the server at ``where``: it may not be the right one any more."""

    def forget(self) -> None:
        """Nothing of what was learnt is known any more."""

    def pools(self) -> list[ServerPool]:
        """Every server that holds keys of its own. Raises redis-py's errors."""

    async def apools(self) -> list[ServerPool]:
        """`pools` on the running event loop."""

    def open_pools(self) -> list[ServerPool]:
        """The servers that there may be connections to."""


class DirectNode:
    """One server at a fixed address."""

    fails_over = False

    def __init__(self, pool: ServerPool, label: str = "") -> None:
        self._pool = pool
        self.label = label or pool.where

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        return self._pool

    def find_pool(self, key: bytes | None) -> ServerPool:
        return self._pool

    async def afind_pool(self, key: bytes | None) -> ServerPool:
        return self._pool

    def invalidate(self, error: Exception, where: str = "") -> None:
        self.forget()

    def forget(self) -> None:
        self._pool.clear()  # what was idle is as dead as the one that failed

    def pools(self) -> list[ServerPool]:
        return [self._pool]

    async def apools(self) -> list[ServerPool]:
        return [self._pool]

    open_pools = pools


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
        pools = [Redis(host, port, **(sentinel_settings or {})).connection_pool for host, port in hosts]
        asked = [(kind, {**settings, "protocol": 2}) for kind, settings in map(portable_settings, pools)]
        self._sentinels = [ServerPool(*each, timeout) for each in asked]
        self._service = service
        self._kind = kind
        self._settings = settings
        self._timeout = timeout
        self.label = service
        self._pool: ServerPool | None = None
        self.forget()
        on_fork(self.forget)  # the parent may have asked long ago, and no closed connection would show that here

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        return self._pool

    def find_pool(self, key: bytes | None) -> ServerPool:
        return self._pool or self._master.get(self._sentinels)

    async def afind_pool(self, key: bytes | None) -> ServerPool:
        return self._pool or await self._master.aget(self._sentinels)

    def _asked(self, sentinel: ServerPool) -> ServerPool:
        (told,) = _told(sentinel, self._timeout, "SENTINEL MASTERS")
        try:
            masters = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in told]
            states = [each for each in masters if each[b"name"] == self._service.encode()]
            places = [(_host(each[b"ip"]), int(each[b"port"]), each[b"flags"].split(b",")) for each in states]
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise InvalidResponse(str(UnreadableReply(told))) from error
        if not places:
            raise RedisError(f"knows no {self._service!r}")
        host, port, flags = places[0]
        if b"s_down" in flags or b"o_down" in flags:
            raise RedisError(f"takes {host}:{port} for down")
        return ServerPool(self._kind, {**self._settings, "host": host, "port": port}, self._timeout)

    def _use(self, master: ServerPool) -> None:
        self._pool = master

    def invalidate(self, error: Exception, where: str = "") -> None:
        route = self._pool
        if route is not None and where in ("", route.where):  # else another has taken its place meanwhile
            self._pool = None
            route.clear()

    def forget(self) -> None:
        self._pool = None
        self._master = FirstAnswer(self._asked, self._use, self._timeout)

    def pools(self) -> list[ServerPool]:
        return [self.find_pool(None)]

    async def apools(self) -> list[ServerPool]:
        return [await self.afind_pool(None)]

    def open_pools(self) -> list[ServerPool]:
        return [self._pool] if self._pool else []


class ClusterNode:
    """A Redis Cluster: each slot has a master of its own."""

    fails_over = True

    def __init__(self, hosts: list[tuple[str, int]], settings: Mapping[str, Any], timeout: float) -> None:
        self._settings = settings
        self._timeout = timeout
        self._by_address: dict[tuple[str, int], ServerPool] = {}
        self._seeds = [self._pool_at(host, port) for host, port in hosts]
        self.label = "cluster"
        self._slots: Slots = []
        self.forget()
        on_fork(self.forget)  # the parent may have asked long ago, and no closed connection would show that here

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        if key is None:
            return next(filter(None, self._slots), None)
        return self._slots[key_slot(key)]

    def find_pool(self, key: bytes | None) -> ServerPool:
        return self.known_pool(key) or _serving(key, self._map.get(self._asked_for_it()))

    async def afind_pool(self, key: bytes | None) -> ServerPool:
        return self.known_pool(key) or _serving(key, await self._map.aget(self._asked_for_it()))

    def _asked_for_it(self) -> Sequence[ServerPool]:
        others = [route for route in self.open_pools() if route not in self._seeds]
        return [*self._seeds, *random.sample(others, min(ASKED, len(others)))]

    def _asked(self, route: ServerPool) -> Slots:
        """What a server knows. One that is cut off from the others may not have heard of a failover, and says so."""
        told, state = _told(route, self._timeout, "CLUSTER SLOTS", "CLUSTER INFO")
        slots: Slots = [None] * REDIS_CLUSTER_HASH_SLOTS
        try:
            for first, last, (host, port, *_), *_ in told:
                there = self._pool_at(_host_of(route) if host in _HERE else _host(host), port)
                slots[first : last + 1] = [there] * (last + 1 - first)
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidResponse(str(UnreadableReply(told))) from error
        if not told:
            raise RedisError("belongs to no cluster, or to one without slots")
        if isinstance(state, bytes) and b"cluster_state:fail" in state:  # an error: its user may not ask for that
            raise SecondBest(slots, "the cluster is down, it says")
        return slots

    def _use(self, slots: Slots) -> None:
        """Addresses that serve no more are forgotten."""
        self._slots = slots
        live = {*slots, *self._seeds}
        for place, route in list(self._by_address.items()):
            if route not in live:
                del self._by_address[place]
                route.clear()

    def _pool_at(self, host: str, port: int) -> ServerPool:
        route = self._by_address.get((host, port))
        if route is None:
            new = ServerPool(Connection, {**self._settings, "host": host, "port": port}, self._timeout)
            route = self._by_address.setdefault((host, port), new)
        return route

    def invalidate(self, error: Exception, where: str = "") -> None:
        failed = {route for route in self.open_pools() if route.where == where}
        self._slots = [None if route in failed else route for route in self._slots]
        for route in failed:
            route.clear()

    def forget(self) -> None:
        self._slots = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._map = FirstAnswer(self._asked, self._use, self._timeout)

    def redirected(self, move: Redirection, asked: ServerPool | None) -> ServerPool:
        """Where the server that was ``asked`` sends us by ASK or MOVED; MOVED for good."""
        route = self._pool_at(move.host or _host_of(asked or self._seeds[0]), move.port)
        if not move.asking:
            self._slots[move.slot] = route
        return route

    def pools(self) -> list[ServerPool]:
        return _servers(self._map.get(self._asked_for_it()) if None in self._slots else self._slots)

    async def apools(self) -> list[ServerPool]:
        return _servers(await self._map.aget(self._asked_for_it()) if None in self._slots else self._slots)

    def open_pools(self) -> list[ServerPool]:
        return list(self._by_address.values())


def _told(route: ServerPool, timeout: float, *questions: str) -> list[Any]:
    """What a server answers within ``timeout`` seconds. Raises redis-py's errors, also when the first answer is one."""
    connection = route.connect()
    try:
        connection.send_packed_command([encode_command(*question.encode().split()) for question in questions], False)
        told = read_replies(connection, len(questions), time.monotonic() + timeout)
    finally:
        route.discard(connection)
    if isinstance(told[0], Exception):
        raise told[0]
    return told


def _host(name: bytes) -> str:
    """A host's name or address. Raises ``ValueError`` for what can't be looked up."""
    host = name.decode()
    host.encode("idna")
    return host


def _host_of(route: ServerPool) -> str:
    return route.where.rpartition(":")[0]


def _servers(slots: Slots) -> list[ServerPool]:
    return list(dict.fromkeys(filter(None, slots)))


def _serving(key: bytes | None, slots: Slots) -> ServerPool:
    route = next(filter(None, slots), None) if key is None else slots[key_slot(key)]
    if route is None:
        raise RedisError("no node of the cluster serves this slot")
    return route
