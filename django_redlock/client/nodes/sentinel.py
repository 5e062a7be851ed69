"""The node for a master that Sentinels monitor.

See redis.io, "Guidelines for Redis clients with support for Redis Sentinel".
"""

from __future__ import annotations

from redis import RedisError
from redis.connection import SSLConnection
from redis.exceptions import InvalidResponse

from ...core.flow.replies import UnreadableReply
from ...core.flow.requests import Flow
from ...core.process.fork import on_fork
from ..pool import ServerPool
from .first_answer import FirstAnswer, decoded_host, replies_of
from .node import Node
from .servers import Address, Servers


class SentinelNode(Node):
    """The master of one service. After each failure the Sentinels are asked for the master again.

    ``hosts``: the addresses of the Sentinels. ``service``: the name of the master in the Sentinels. ``masters`` and
    ``sentinels``: how to connect to the master, and to the Sentinels.
    """

    fails_over = True

    def __init__(self, hosts: list[Address], service: str, masters: Servers, sentinels: Servers) -> None:
        super().__init__(None, service, issubclass(masters.kind, SSLConnection))
        self._masters = masters
        self._sentinels = [sentinels.pool_at(host) for host in hosts]
        self.forget()
        on_fork(self.forget)  # the parent's master may be out of date, and the child has no connection that would fail

    def find_pool(self, key: bytes | None) -> Flow[ServerPool]:
        return self._pool or (yield from self._master.get(self._sentinels))

    def _ask_master(self, sentinel: ServerPool) -> ServerPool:
        """Ask the Sentinel of the pool ``sentinel``, and return a pool for the master. Raises redis-py's errors."""
        (reply,) = replies_of(sentinel, "SENTINEL MASTERS")
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
        return self._masters.pool_at(self._masters.options.remap((host, port)))

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
        self._master = FirstAnswer(self._ask_master, self._use, self._masters.options.timeout)
