"""The node for a Redis Cluster, in which each hash slot has a master (redis.io, "Redis cluster specification")."""

from __future__ import annotations

import random
from collections.abc import Sequence

from redis import RedisError
from redis.connection import SSLConnection
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, InvalidResponse, MovedError

from ...core.flow.replies import UnreadableReply
from ...core.flow.requests import Flow
from ...core.process.fork import on_fork
from ..pool import ServerPool
from .first_answer import FirstAnswer, decoded_host, replies_of
from .node import Node
from .servers import Address, Servers

MAX_ASKED = 8  # servers of a Cluster that are asked for the slot map, besides the addresses in LOCATION
_SAME_HOST = None, b"", b"?"  # hosts in CLUSTER SLOTS that stand for the host of the server that was asked
Slots = list["ServerPool | None"]  # slot -> the pool of its master


class ClusterNode(Node):
    """A Redis Cluster as one node, with a slot map that has the master of each slot.

    The map is the reply to CLUSTER SLOTS, corrected by MOVED replies. ``hosts``: the addresses in LOCATION.
    ``servers``: how to connect.
    """

    fails_over = is_cluster = True
    _slots: Slots

    def __init__(self, hosts: list[Address], servers: Servers) -> None:
        super().__init__(None, "cluster", issubclass(servers.kind, SSLConnection))
        self._servers = servers
        self._by_address: dict[Address, ServerPool] = {}
        self._seeds = [self._pool_at(host) for host in hosts]
        self.forget()
        on_fork(self.forget)  # the parent's map may be out of date, and the child has no connection that would fail

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        return _pool_for(key, self._slots)

    def find_pool(self, key: bytes | None) -> Flow[ServerPool]:
        pool = self.known_pool(key) or _pool_for(key, (yield from self._ask_servers()))
        if pool is None:
            raise RedisError("no node of the cluster serves this slot")
        return pool

    def _ask_servers(self) -> Flow[Slots]:
        """Return the slot map from the first server that replies. Servers that fail may name further servers to ask.

        A server that is cut off from the Cluster has no usable map, but knows other servers.
        """
        known = len(self.open_pools())
        try:
            return (yield from self._map.get(self._servers_to_ask()))
        except RedisError:
            if len(self.open_pools()) == known:
                raise
            return (yield from self._map.get(self._servers_to_ask()))

    def _servers_to_ask(self) -> Sequence[ServerPool]:
        others = [pool for pool in self.open_pools() if pool not in self._seeds]
        return [*self._seeds, *random.sample(others, min(MAX_ASKED, len(others)))]

    def _ask_slots(self, pool: ServerPool) -> Slots:
        """Return the slot map of the server of ``pool``. Raises redis-py's errors."""
        ranges, state = replies_of(pool, "CLUSTER SLOTS", "CLUSTER INFO")
        slots: Slots = [None] * REDIS_CLUSTER_HASH_SLOTS
        try:
            for first, last, (host, port, *_), *_ in ranges:
                master = self._pool_for(_host_of(pool) if host in _SAME_HOST else decoded_host(host), port)
                slots[first : last + 1] = [master] * (last + 1 - first)
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidResponse(str(UnreadableReply(ranges))) from error
        if not ranges:
            raise RedisError("belongs to no cluster, or to one without slots")
        # A server that is cut off may have missed a failover. No bytes: the user may not run CLUSTER INFO.
        if isinstance(state, bytes) and b"cluster_state:fail" in state:
            raise RedisError("reports that the cluster is down")
        return slots

    def _use(self, slots: Slots) -> None:
        """Set the slot map to ``slots``. Drop the pools of servers that have no slot, unless LOCATION names them."""
        self._slots = slots
        live = {*slots, *self._seeds}
        for address, pool in list(self._by_address.items()):
            if pool not in live:
                del self._by_address[address]
                pool.clear()

    def _pool_for(self, host: str, port: int) -> ServerPool:
        """Return the pool of the server that reports the address ``host`` and ``port``."""
        return self._pool_at(self._servers.options.remap((host, port)))

    def _pool_at(self, address: Address) -> ServerPool:
        return self._by_address.get(address) or self._by_address.setdefault(address, self._servers.pool_at(address))

    def invalidate(self, where: str) -> None:
        failed = {pool for pool in self.open_pools() if pool.where == where}
        self._slots = [None if pool in failed else pool for pool in self._slots]
        for pool in failed:
            pool.clear()

    def forget(self) -> None:
        """Discard the slot map. The next request reads it again."""
        self._slots = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._map = FirstAnswer(self._ask_slots, self._use, self._servers.options.timeout)

    def redirected(self, error: AskError, sender: ServerPool | None) -> ServerPool:
        """Return the pool of the server to which ``sender`` has redirected. MOVED changes the slot map, ASK does not.

        If ``error`` names no host, the host of ``sender`` is used; without a sender, the first host in LOCATION.
        """
        host = error.host if error.host not in ("", "?") else _host_of(sender or self._seeds[0])
        pool = self._pool_for(host, error.port)
        if isinstance(error, MovedError):  # which is a subclass
            self._slots[error.slot_id] = pool
        return pool

    def pools(self) -> Flow[list[ServerPool]]:
        slots = (yield from self._ask_servers()) if None in self._slots else self._slots
        return list(dict.fromkeys(filter(None, slots)))

    def open_pools(self) -> list[ServerPool]:
        return list(self._by_address.values())


def _host_of(pool: ServerPool) -> str:
    return pool.where.rpartition(":")[0]


def _pool_for(key: bytes | None, slots: Slots) -> ServerPool | None:
    return next(filter(None, slots), None) if key is None else slots[key_slot(key)]
