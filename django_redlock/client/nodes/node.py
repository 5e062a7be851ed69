"""One server, or several servers that have one vote: how the rest of the client finds the server that serves a key."""

from __future__ import annotations

from ...core.flow.requests import Flow
from ..pool import ServerPool


class Node:
    """The server of ``pool``, at a fixed address. Subclasses: a master behind Sentinels, and a Redis Cluster.

    ``label`` names the node in messages. ``tls`` says whether connections to the servers use TLS. ``fails_over`` says
    whether another server replaces a server that has failed.
    """

    fails_over = False

    def __init__(self, pool: ServerPool | None, label: str, tls: bool) -> None:
        self._pool = pool
        self.label = label
        self.tls = tls

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        """Return the connection pool of the server that serves ``key``; ``None`` if only a request can find the server.

        If ``key`` is ``None``, the server may be any server of the node.
        """
        return self._pool

    def find_pool(self, key: bytes | None) -> Flow[ServerPool]:
        """Flow that returns the result of `known_pool`, after asking Sentinels or the Cluster. Yields `AwaitFuture`.

        Raises redis-py's errors if no server is found.
        """
        raise NotImplementedError

    def pools(self) -> Flow[list[ServerPool]]:
        """Flow like `find_pool` that returns the connection pools of all servers that own keys."""
        return [self._pool or (yield from self.find_pool(None))]

    def open_pools(self) -> list[ServerPool]:
        """Return the pools that may have open connections. Sends no request."""
        return [self._pool] if self._pool else []

    def invalidate(self, where: str) -> None:
        """Close the idle connections to the server at ``where``, which has failed.

        A subclass also forgets the server, so that the next request looks for it again. ``where``: as
        `ServerPool.where`; ``""`` if no server was found.
        """
        if self._pool:
            self._pool.clear()
