"""One node of a quorum: its idle connections, and connections on which replies are outstanding.

When the outcome of a request is certain, some replies may be outstanding. Their connections are kept for the next
request of the same acquisition: on the same connection a release can't overtake the acquire that it undoes.
"""

from __future__ import annotations

import math
import time

from redis.exceptions import RedisError

from ...core.flow.requests import Fault
from ...core.process.fork import on_fork
from ...core.process.mutex import new_mutex
from ..connection import ReplyIncomplete
from ..nodes.node import Node
from .in_flight import InFlightConnection
from .node_keeper import NodeKeeper

PROBE_SECONDS = 60.0  # seconds after the last request, after which probing ends
RELEASE_WINDOW = 60.0  # seconds for which a connection with an outstanding reply waits for the acquisition's release


class QuorumNode:
    """The connections to one node. ``keeper`` connects to the node, and knows whether it is down.

    The connections belong to no event loop: a thread or another loop can release an acquisition on the connection of
    its acquire. ``timeout``: the node timeout in seconds. ``greeting``: an encoded command that is sent first on each
    new connection.
    """

    def __init__(self, node: Node, timeout: float, greeting: bytes = b"") -> None:
        self._node = node
        self.timeout = timeout
        self._greeting = greeting
        self._reset()
        on_fork(self._reset)  # the connections belong to the parent

    def _reset(self) -> None:
        self._mutex = new_mutex()
        self._last_request = -math.inf  # by the monotonic clock
        self.keeper = NodeKeeper(self._node, self.timeout, self._greeting, self.is_used)
        self._in_flight: dict[bytes, InFlightConnection] = {}  # by acquisition

    def is_used(self) -> bool:
        """Return whether there was a request lately, and no `close` after it."""
        return time.monotonic() - self._last_request <= PROBE_SECONDS

    def idle(self) -> InFlightConnection | None:
        """Return an idle connection; ``None`` if there is none."""
        pool = self._node.known_pool(b"")
        if pool is None:
            return None
        connection = pool.checkout_idle()
        if connection is None and pool.is_full and self._in_flight:
            self.read_late_replies(time.monotonic())  # which frees connections
            connection = pool.checkout_idle()
        return None if connection is None else InFlightConnection(self._node, pool, connection)

    @property
    def is_full(self) -> bool:
        """Whether the connection limit is reached."""
        pool = self._node.known_pool(b"")
        return pool is not None and pool.is_full

    def not_connected(self, first_fault: Fault | None) -> Fault:
        """Return a `Fault` with the reason why there is no connection.

        ``first_fault``: the fault of a connection that was to be replaced, if any.
        """
        if (error := self.keeper.failure(time.monotonic())) is None:
            if first_fault is not None:
                return first_fault
            error = TimeoutError("all connections are in use" if self.is_full else "not connected yet")
        return Fault(error, where=self._node.label)

    def mark_failed(self, connection: InFlightConnection, fault: Fault) -> None:
        """Record that the node did not reply on ``connection``. A release is repeated in the background.

        Marks the node as down, unless ``fault`` is stale: an idle connection was closed or dropped, or the server has
        become a replica.
        """
        if not fault.stale:
            self.keeper.mark_down(fault.error)
        if connection.kind == "release":
            self.keeper.repeat(connection.calls)

    # ── outstanding replies ──────────────────────────────────────────────────────────────────

    def keep_in_flight(self, acquisition_id: bytes, connection: InFlightConnection) -> None:
        """Keep a connection with outstanding replies for the acquisition's next request.

        If ``acquisition_id`` is ``b""``, the connection is kept until its replies arrive or time out. If the
        acquisition already has a kept connection, ``connection`` is closed.
        """
        key = acquisition_id or id(connection).to_bytes(8, "big")
        with self._mutex:  # close() replaces the dict
            kept = self._in_flight.setdefault(key, connection) is connection
        if not kept:
            connection.discard()

    def take_in_flight(self, acquisition_id: bytes) -> InFlightConnection | None:
        """Remove and return the acquisition's connection that `keep_in_flight` has kept; ``None`` without one.

        The caller must check in, discard or keep the connection.
        """
        if not self._in_flight:
            return None
        with self._mutex:
            return self._in_flight.pop(acquisition_id, None)

    def begin_request(self, now: float) -> None:
        """Read the outstanding replies that have arrived. Called before each request. ``now``: monotonic seconds."""
        self._last_request = now
        if self._in_flight:
            self.read_late_replies(now)

    def read_late_replies(self, now: float) -> None:
        """Read late replies, and close connections whose replies are overdue. ``now``: monotonic seconds."""
        due: dict[bytes, InFlightConnection] = {}
        with self._mutex:  # only connections that are due leave the dict: a concurrent release needs the others
            for key, connection in tuple(self._in_flight.items()):
                if self._in_flight.get(key) is not connection:
                    continue  # a signal handler has removed the connection
                age = now - connection.sent_at
                if connection.is_readable() or age > (RELEASE_WINDOW if connection.kept_for_release else self.timeout):
                    if self._in_flight.pop(key, None) is connection:
                        due[key] = connection
                elif age > self.timeout:
                    self.keeper.mark_down(TimeoutError("no reply in time"))
        for key, connection in due.items():
            error: Exception = TimeoutError("no reply in time")
            try:
                if connection.is_readable():
                    connection.receive()
                    connection.checkin()
                    continue
            except (RedisError, OSError) as raised:
                if isinstance(raised, ReplyIncomplete) and now - connection.sent_at <= self.timeout:
                    self.keep_in_flight(key, connection)  # a later reply is outstanding
                    continue
                error = raised
            self.mark_failed(connection, connection.fail(error))

    def close(self) -> None:
        """Close all connections that no request uses, and stop probing the node."""
        self._last_request = -math.inf  # before the pools: the keeper leaves no idle connection in them
        for pool in self._node.open_pools():
            pool.clear()
        with self._mutex:
            in_flight, self._in_flight = self._in_flight, {}
        for connection in in_flight.values():
            connection.discard()
