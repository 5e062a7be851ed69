"""`Node`: one server, or several servers with one vote. A node finds the server that serves a key, and notes faults."""

from __future__ import annotations

from typing import Any

from redis.exceptions import AskError, ReadOnlyError, ResponseError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError

from ...core.events import report_fault
from ...core.flow.replies import UnreadableReply
from ...core.flow.requests import EvalScript, Fault, Flow
from ..connection import AllInUse, ConnectionSilent
from ..errors import NOT_SERVING, WRONG_SERVER, caused_by, fault_reason, forget_callers, plain_error, timed_out
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
        """Return the pool of the server to which ``error`` redirects; ``None`` outside of a Cluster."""
        return None

    def invalidate(self, where: str) -> None:
        """Close the idle connections to the server at ``where``, which has failed.

        Subclasses also forget which server is responsible, so that the next request finds it again. ``where``: as in
        `ServerPool.where`; ``""`` if no server was found.
        """
        if self._pool:
            self._pool.clear()

    def record_fault(self, error: Exception, connected: bool = False, where: str = "") -> Fault:
        """Return the `Fault` for ``error``, and record it. After most errors the node looks for its server again.

        ``where``: the server's address. ``connected``: whether the connection was open before the error. After a
        ``stale`` fault the request may be repeated at once: the server has closed the connection, an idle connection is
        silent, or the server takes no writes (READONLY, NOREPLICAS).

        The node keeps the server after `AllInUse`, and after a `ResponseError` other than READONLY, NOREPLICAS and
        CLUSTERDOWN. After every other error it forgets the server, and the next request looks for it again.
        """
        late = timed_out(error)
        silent = isinstance(error, ConnectionSilent)
        closed = connected and type(error) is RedisConnectionError and not late
        error = plain_error(error, late, connected, self.tls)
        if isinstance(error, AskError) and not self.is_cluster:  # or its subclass `MovedError`
            text = "it belongs to a Redis Cluster: use redis+cluster:// (rediss+cluster:// with TLS) as LOCATION"
            error = caused_by(ResponseError(text), error)
        refused = isinstance(error, ResponseError)
        if not (refused or isinstance(error, AllInUse)) or isinstance(error, NOT_SERVING):
            self.invalidate(where)
        report_fault(self.label, fault_reason(error, late))
        elsewhere = not refused or isinstance(error, WRONG_SERVER) or str(error).startswith("BUSY ")
        transient = "UNBLOCKED" in str(error) or (self.fails_over and elsewhere)
        stale, migrating = silent or closed or isinstance(error, ReadOnlyError), isinstance(error, TryAgainError)
        forget_callers(error)
        return Fault(
            error, stale, where or self.label, transient, 0.0, migrating, refused, unconfirmed=connected and not refused
        )

    def check_reply(self, call: EvalScript, reply: Any, where: str = "") -> Any:
        """Return ``reply``, or a `Fault` for an error and for a type that the package's scripts don't return.

        The scripts return integers and arrays. Scripts without a compensation (``call.compensation``) may also return
        nil. ``where``: the server's address, for the `Fault`.
        """
        if type(reply) in (int, list) or (reply is None and call.compensation is None):
            return reply
        if isinstance(reply, Exception):
            return self.record_fault(reply, where=where)
        return self.record_fault(UnreadableReply(reply), connected=True, where=where)
