"""The node for a master that Sentinels monitor.

See redis.io, "Guidelines for Redis clients with support for Redis Sentinel".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis import RedisError
from redis.connection import AbstractConnection, SSLConnection
from redis.exceptions import InvalidResponse

from ...core.flow.replies import UnreadableReply
from ...core.flow.requests import Flow
from ...core.process.fork import on_fork
from ..pool import ServerPool
from .first_answer import FirstAnswer, decoded_host, replies_of
from .node import Node
from .remap import Address, Remap, as_reported

Connections = tuple[type[AbstractConnection], Mapping[str, Any]]  # the class and the settings of connections


class SentinelNode(Node):
    """The master of one service. After each failure the Sentinels are asked for the master again.

    ``hosts``: the addresses of the Sentinels. ``service``: the name of the master in the Sentinels. ``connections``:
    class and settings of connections to the master. ``sentinels``: the same for connections to the Sentinels.
    ``timeout``: the longest time to connect, and to wait for each reply, in seconds. ``remap``: returns the address at
    which this client reaches the master, from the address that the Sentinels report.
    """

    fails_over = True

    def __init__(
        self,
        hosts: list[Address],
        service: str,
        connections: Connections,
        sentinels: Connections,
        timeout: float,
        remap: Remap = as_reported,
    ) -> None:
        self._kind, self._settings = connections
        super().__init__(None, service, issubclass(self._kind, SSLConnection))
        kind, settings = sentinels
        self._sentinels = [ServerPool(kind, {**settings, "host": host, "port": port}, timeout) for host, port in hosts]
        self._remap = remap
        self._timeout = timeout
        self.forget()
        on_fork(self.forget)  # the parent's master may be out of date, and the child has no connection that would fail

    def find_pool(self, key: bytes | None) -> Flow[ServerPool]:
        return self._pool or (yield from self._master.get(self._sentinels))

    def _ask_master(self, sentinel: ServerPool) -> ServerPool:
        """Ask the Sentinel of the pool ``sentinel``, and return a pool for the master. Raises redis-py's errors."""
        (reply,) = replies_of(sentinel, self._timeout, "SENTINEL MASTERS")
        try:
            masters = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in reply]
            states = [each for each in masters if each[b"name"] == self.label.encode()]
            found = [(decoded_host(each[b"ip"]), int(each[b"port"]), each[b"flags"].split(b",")) for each in states]
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise InvalidResponse(str(UnreadableReply(reply))) from error
        if not found:
            raise RedisError(f"knows no service {self.label!r}")
        host, port, flags = found[0]
        if b"s_down" in flags or b"o_down" in flags:
            raise RedisError(f"reports {host}:{port} as down")
        host, port = self._remap((host, port))
        return ServerPool(self._kind, {**self._settings, "host": host, "port": port}, self._timeout)

    def _use(self, master: ServerPool) -> None:
        self._pool = master

    def invalidate(self, where: str) -> None:
        pool = self._pool
        if pool is not None and where in ("", pool.where):  # otherwise a new master has been found meanwhile
            self._pool = None
            pool.clear()

    def forget(self) -> None:
        """Forget the master. The next request asks the Sentinels again."""
        self._pool = None
        self._master = FirstAnswer(self._ask_master, self._use, self._timeout)
