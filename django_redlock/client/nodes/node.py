"""`Node`: one server, or several servers with one vote. A node finds the server that serves a key."""

from __future__ import annotations

from redis.exceptions import AskError

from ...core.flow.requests import Flow
from ..pool import ServerPool


class Node:
    """A server at a fixed address, with its ``pool``. Subclasses: a master behind Sentinels, and a Redis Cluster.

    ``label``: the name of the node in messages. ``tls``: whether connections to its servers use TLS. ``fails_over``:
    whether another server replaces a failed server. ``is_cluster``: whether the node is a Redis Cluster.
    """

    fails_over = False
    is_cluster = False

    def __init__(self, pool: ServerPool | None, label: str, tls: bool) -> None:
        self._pool = pool
        self.label = label
        self.tls = tls

    def known_pool(self, key: bytes | None) -> ServerPool | None:
        """Return the connection pool of the server that serves ``key``; ``None`` if the server is not known yet.

        If ``key`` is ``None``, the server may be any server of the node.
        """
        return self._pool

    def find_pool(self, key: bytes | None) -> Flow[ServerPool]:
        """Return the pool of the server that serves ``key``. Asks Sentinels or the Cluster if necessary.

        Raises redis-py's errors if no server is found.
        """
        raise NotImplementedError

    def pools(self) -> Flow[list[ServerPool]]:
        """Return the connection pools of all servers that own keys. Raises redis-py's errors, as `find_pool` does."""
        return [self._pool or (yield from self.find_pool(None))]

    def open_pools(self) -> list[ServerPool]:
        """Return the pools that may have open connections. Sends no request."""
        return [self._pool] if self._pool else []

    def redirected(self, error: AskError, sender: ServerPool | None) -> ServerPool | None:
        """Return the pool of the server to which ``sender`` of a Cluster has redirected; ``None`` for other nodes."""
        return None

    def invalidate(self, where: str) -> None:
        """Close the idle connections to the server at ``where``, which has failed.

        Subclasses also forget which server is responsible, so that the next request finds it again. ``where``: as in
        `ServerPool.where`; ``""`` if no server was found.
        """
        if self._pool:
            self._pool.clear()
