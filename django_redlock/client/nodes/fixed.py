"""The node with a fixed address."""

from __future__ import annotations

from ...core.flow.requests import Flow
from ..pool import ServerPool


class DirectNode:
    """One server at a fixed address."""

    fails_over = False

    def __init__(self, pool: ServerPool, label: str = "") -> None:
        self._pool = pool
        self.label = label or pool.where
        self.tls = pool.uses_tls

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        return self._pool

    def find_pool(self, key: bytes | None) -> Flow[ServerPool]:
        yield from ()
        return self._pool

    def invalidate(self, error: Exception, where: str = "") -> None:
        self.forget()

    def forget(self) -> None:
        self._pool.clear()  # when a connection has failed, the idle connections have probably failed, too

    def pools(self) -> Flow[list[ServerPool]]:
        yield from ()
        return [self._pool]

    def open_pools(self) -> list[ServerPool]:
        return [self._pool]
