"""The connections to the nodes of a quorum.

When the outcome of a request is certain, some replies may be outstanding. Their connections are kept for the next
request of the same acquisition. On the same connection a release can't overtake the acquire that it undoes.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from ...core.flow.requests import Fault
from ...core.process.fork import on_fork
from ...core.process.mutex import new_mutex
from ..connection import ReplyIncomplete
from ..errors import without_context
from ..nodes.node import Node
from .in_flight import InFlightConnection
from .node_keeper import NodeKeeper

PROBE_SECONDS = 60.0  # seconds after the last request, after which probing ends
RELEASE_WINDOW = 60.0  # seconds for which a connection with an outstanding reply waits for the acquisition's release


class NodeConnections:
    """The connections to all nodes: idle ones, and those with outstanding replies. Knows which nodes are down.

    The connections belong to no event loop, so a thread or another loop can release an acquisition on the connection
    of its acquire. ``timeout`` is the node timeout in seconds. ``greeting`` is an encoded command that is sent on each
    new connection. Nodes are given by their index in ``nodes``.
    """

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self._nodes = nodes
        self.timeout = timeout
        self._greeting = greeting
        self._reset()
        on_fork(self._reset)  # the connections belong to the parent

    def _reset(self) -> None:
        self._mutex = new_mutex()
        self._last_request = -math.inf  # by the monotonic clock
        self.keepers = [NodeKeeper(node, self.timeout, self._greeting, self.is_used) for node in self._nodes]
        self._in_flight: dict[tuple[bytes, int], InFlightConnection] = {}  # by acquisition and node

    def begin_request(self, now: float) -> None:
        """Read the outstanding replies that have arrived. Must be called before each request.

        ``now``: monotonic seconds.
        """
        self._last_request = now
        self._collect(now)

    def is_used(self) -> bool:
        """Return whether there were requests lately, and `close` was not called since."""
        return time.monotonic() - self._last_request <= PROBE_SECONDS

    def needed(self, count: int, decided: Callable[[Sequence[Any]], bool]) -> int:
        """Return how many of ``count`` nodes must be connected so that the request can still succeed.

        This is the smallest number for which the outcome is still open if all other nodes fail, but at least a majority
        of all nodes. ``decided``: as in `SendToAll`. Returns 0 if the request waits for no reply.
        """
        if decided([None] * count):
            return 0
        fault = Fault(TimeoutError())
        candidates = range(len(self._nodes) // 2 + 1, count)
        return next((few for few in candidates if not decided([None] * few + [fault] * (count - few))), count)

    def idle(self, node: int) -> InFlightConnection | None:
        """Return an idle connection to the node; ``None`` if there is none."""
        pool = self._nodes[node].known_pool(b"")
        if pool is None:
            return None
        connection = pool.idle()
        if connection is None and pool.is_full and self._in_flight:
            self._collect(time.monotonic())  # outstanding replies may have arrived, which frees connections
            connection = pool.idle()
        return None if connection is None else InFlightConnection(self._nodes[node], pool, connection)

    def is_full(self, node: int) -> bool:
        """Return whether no more connections to the node may be opened."""
        pool = self._nodes[node].known_pool(b"")
        return pool is not None and pool.is_full

    def not_connected(self, node: int, first_fault: Fault | None = None) -> Fault:
        """Return a `Fault` with the reason why there is no connection to the node.

        ``first_fault``: of the connection that should have been replaced, if any.
        """
        error = self.keepers[node].failure(time.monotonic())
        if first_fault is not None and error is None:
            return first_fault
        reason = "all connections are in use" if error is None and self.is_full(node) else "not connected yet"
        return Fault(error or TimeoutError(reason), where=self._nodes[node].label)

    def mark_failed(self, node: int, connection: InFlightConnection, fault: Fault) -> None:
        """Record that the node did not reply on ``connection``, and repeat a release in the background.

        Marks the node as down, unless ``fault`` is stale, which means that an idle connection was closed or dropped, or
        that the server has become a replica.
        """
        if not fault.stale:
            self.keepers[node].mark_down(fault.error)
        if connection.kind == "release":
            self.keepers[node].repeat(connection.script_calls)

    def keep_in_flight(self, acquisition_id: bytes, node: int, connection: InFlightConnection) -> None:
        """Keep a connection with outstanding replies for the acquisition's next request to the node.

        If ``acquisition_id`` is ``b""``, there is no next request, and the connection is kept until its replies arrive
        or time out. Closes the connection if another connection to the node was kept for the acquisition meanwhile.
        """
        key = acquisition_id or id(connection).to_bytes(8, "big"), node
        with self._mutex:  # close() replaces the dict
            kept = self._in_flight.setdefault(key, connection) is connection
        if not kept:
            connection.discard()

    def take_in_flight(self, acquisition_id: bytes, node: int) -> InFlightConnection | None:
        """Return the connection that `keep_in_flight` has kept for the acquisition and the node, and keep it no longer.

        Returns ``None`` if there is none. The caller must check in, discard or keep the connection.
        """
        if not self._in_flight:
            return None
        with self._mutex:
            return self._in_flight.pop((acquisition_id, node), None)

    def _collect(self, now: float) -> None:
        """Read replies that arrived late, and close connections on which no reply has arrived in time.

        ``now``: monotonic seconds.
        """
        if not self._in_flight:
            return
        handled = sys.exception()
        due: dict[tuple[bytes, int], InFlightConnection] = {}
        with self._mutex:  # only connections that are due leave the dict: a concurrent release needs the others
            for key, connection in tuple(self._in_flight.items()):
                if self._in_flight.get(key) is not connection:
                    continue  # a signal handler has removed the connection
                age = now - connection.sent_at
                if connection.is_readable() or age > (RELEASE_WINDOW if connection.kept_for_release else self.timeout):
                    if self._in_flight.pop(key, None) is connection:
                        due[key] = connection
                elif age > self.timeout:
                    self.keepers[key[1]].mark_down(TimeoutError("no reply in time"))
        for key, connection in due.items():
            error: Exception = TimeoutError("no reply in time")
            try:
                if connection.is_readable():
                    connection.receive()
                    connection.checkin()
                    continue
            except (RedisError, OSError) as raised:
                if isinstance(raised, ReplyIncomplete) and now - connection.sent_at <= self.timeout:
                    self.keep_in_flight(*key, connection)  # a later reply is outstanding
                    continue
                error = without_context(raised, handled)
            self.mark_failed(key[1], connection, connection.fail(error))

    def close(self) -> None:
        """Close all connections that no request uses, and stop probing nodes that are down."""
        self._last_request = -math.inf  # before the pools: no keeper leaves an idle connection in them
        for node in self._nodes:
            for pool in node.open_pools():
                pool.clear()
        with self._mutex:
            in_flight, self._in_flight = self._in_flight, {}
        for connection in in_flight.values():
            connection.discard()
