"""What every node can do, and the node with a fixed address."""

from __future__ import annotations

from typing import Protocol

from ..pool import ServerPool


class Node(Protocol):
    """One participant of an algorithm: a server, or several servers that answer as one.

    ``label`` names the node in messages. ``fails_over``: another server will take the place of one that has failed.
    """

    label: str
    fails_over: bool

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        """The pool of the server for ``key`` (``None``: of any server), if it is known without a request."""

    def find_pool(self, key: bytes | None) -> ServerPool:
        """`known_pool`, asking Sentinels or the Cluster if it isn't known. Raises redis-py's errors."""

    async def afind_pool(self, key: bytes | None) -> ServerPool:
        """`find_pool` on the running event loop."""

    def invalidate(self, error: Exception, where: str = "") -> None:
        """The server at ``where`` failed with ``error``: find the server anew, and close idle connections to it."""

    def forget(self) -> None:
        """Forget which servers were found."""

    def pools(self) -> list[ServerPool]:
        """The pools of all servers that own keys. Raises redis-py's errors."""

    async def apools(self) -> list[ServerPool]:
        """`pools` on the running event loop."""

    def open_pools(self) -> list[ServerPool]:
        """The pools that may have connections."""


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
        self._pool.clear()  # the idle connections have failed with the one in use

    def pools(self) -> list[ServerPool]:
        return [self._pool]

    async def apools(self) -> list[ServerPool]:
        return [self._pool]

    open_pools = pools
