"""The protocol of a node: one server, or several servers that have one vote. The other modules have the kinds."""

from __future__ import annotations

from typing import Protocol

from ...core.flow.requests import Flow
from ..pool import ServerPool


class Node(Protocol):
    """One server, or several servers that act as one: a master behind Sentinels, or a Redis Cluster.

    ``label`` names the node in messages. ``fails_over`` says whether another server replaces a server that has failed.
    ``tls`` says whether connections to the servers use TLS.
    """

    label: str
    fails_over: bool
    tls: bool

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        """Return the connection pool of the server that serves ``key``; ``None`` if only a request can find the server.

        If ``key`` is ``None``, the server may be any server of the node.
        """

    def find_pool(self, key: bytes | None) -> Flow[ServerPool]:
        """Flow that returns the connection pool of the server that serves ``key``. Asks Sentinels or the Cluster.

        If ``key`` is ``None``, the server may be any server of the node. Yields `AwaitFuture` only. Raises redis-py's
        errors if no server is found.
        """

    def invalidate(self, error: Exception, where: str = "") -> None:
        """Forget the server that failed with ``error``, and close the idle connections to the server.

        ``where`` is the server's address (`ServerPool.where`). The next request looks for the server again.
        """

    def forget(self) -> None:
        """Forget all servers that were found. The next request looks for its server again."""

    def pools(self) -> Flow[list[ServerPool]]:
        """Flow like `find_pool` that returns the connection pools of all servers that own keys."""

    def open_pools(self) -> list[ServerPool]:
        """Return the pools that may have open connections. Sends no request."""
