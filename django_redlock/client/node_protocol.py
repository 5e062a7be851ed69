"""A node as the rest of the client uses it. ``discovery`` has the implementations."""

from __future__ import annotations

from typing import Protocol

from .pool.server_pool import ServerPool


class Node(Protocol):
    """One participant of an algorithm: a server, or several servers that act as one.

    ``label`` names the node in messages. ``fails_over`` says whether another server replaces a server that has failed.
    """

    label: str
    fails_over: bool

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        """Return the pool of the server for ``key``, or ``None`` if the server isn't known without a request.

        If ``key`` is ``None``, the server may be any server of the node.
        """

    def find_pool(self, key: bytes | None) -> ServerPool:
        """Return the pool of the server for ``key``. Asks Sentinels or the Cluster if the server isn't known.

        If ``key`` is ``None``, the server may be any server of the node. Raises redis-py's errors.
        """

    async def afind_pool(self, key: bytes | None) -> ServerPool:
        """`find_pool` for asyncio."""

    def invalidate(self, error: Exception, where: str = "") -> None:
        """Forget the server at ``where``, which failed with ``error``, and close the idle connections to the server.

        The next request finds the server anew.
        """

    def forget(self) -> None:
        """Forget the servers that were found. The next request finds the servers anew."""

    def pools(self) -> list[ServerPool]:
        """Return the pools of all servers that own keys. Asks for unknown servers. Raises redis-py's errors."""

    async def apools(self) -> list[ServerPool]:
        """`pools` for asyncio."""

    def open_pools(self) -> list[ServerPool]:
        """Return the pools that may have connections."""
