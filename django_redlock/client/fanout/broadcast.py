"""Sends one request to all nodes of a quorum, and reads replies until the outcome is certain."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from redis.exceptions import RedisError

from ...core.flow.requests import Batch, Fault, SendToAll
from ..connection import ConnectionSilent, ReplyIncomplete
from .in_flight import READABLE, InFlightConnection, calls_of
from .quorum_node import QuorumNode

CONNECT_CHECK_SECONDS = 0.002  # seconds between two checks whether a node is connected
STRAGGLER_SHARE = 0.1  # share of the node timeout for which a decided request waits for connections that are opened
MAX_CONNECTIONS = 3  # connections that are tried for one request to a node, when the server has closed connections

Readable = Iterable[tuple[int, int]]  # file descriptors and events


class Poll(Protocol):
    """The methods of `select.poll` that a broadcast uses. `LoopPoll` implements them for an event loop."""

    def register(self, number: int, events: int, /) -> None: ...

    def unregister(self, number: int, /) -> None: ...


class Broadcast:
    """One request to all nodes. It is sent to each node that is connected, and replies are read as they arrive.

    No method blocks: `steps` yields the seconds for which the caller must wait for file descriptors. ``quorum``: all
    nodes. A slot is the index of a node's request in ``request.requests``.
    """

    def __init__(self, quorum: Sequence[QuorumNode], request: SendToAll, poll: Poll) -> None:
        self.poll = poll
        self.requests, self.decided, self.acquisition_id, self.kind, _ = request
        self.nodes = [quorum[each.node] for each in self.requests]  # by slot
        self.majority = len(quorum) // 2 + 1
        self.timeout = quorum[0].timeout
        self.replies: list[Any] = [None] * len(self.requests)
        self.open: dict[int, tuple[int, InFlightConnection]] = {}  # file descriptor -> slot, connection
        self.connecting: set[int] = set()  # the slots of nodes that are being connected
        self.closed: dict[int, tuple[Fault, ...]] = {}  # slot -> the faults of connections that the server had closed
        self.connect_deadline = 0.0  # monotonic seconds, until which nodes may connect
        self.straggler_deadline = 0.0  # until which nodes may connect if the outcome is certain
        self.deadline = 0.0  # until which nodes may reply
        self.end = math.inf  # of a repetition, see `_repeat_silent`; infinite: nothing was repeated

    def steps(self) -> Generator[float, Readable, list[Any]]:
        """Send the requests, read the replies, and return them in the order of the requests.

        Yields the longest time to wait in seconds, and receives the file descriptors that are readable, with their
        events. A reply is a `Fault` if the node is unavailable, and ``None`` if the reply was not waited for.
        """
        open_, connecting, decided, replies = self.open, self.connecting, self.decided, self.replies
        try:
            self._begin(self._set_deadlines())
            while connecting or (open_ and not decided(replies)):
                left = max(0.0, self.deadline - time.monotonic())
                readable = yield min(left, CONNECT_CHECK_SECONDS) if connecting else left
                for number, _ in readable:
                    self._receive(number)
                if connecting:
                    self._send_to_connected()
                elif not left and not self._repeat_silent():
                    break
            if decided(replies):
                self._detach()
            for number, (slot, connection) in tuple(open_.items()):
                self._close(number)
                self._failed(slot, connection, connection.fail(TimeoutError("no reply in time")))
            return replies
        finally:
            for slot in tuple(connecting):
                self._not_connected(slot)
            for number, (_, connection) in open_.items():  # after an interrupt or a cancellation; no node is down
                with suppress(KeyError):  # interrupted beside register() or unregister()
                    self.poll.unregister(number)
                connection.discard()  # sends the compensation on the connection of the request, which it can't overtake

    def _set_deadlines(self) -> float:
        """Set the deadlines of a new attempt. Returns the current time in monotonic seconds."""
        now, timeout = time.monotonic(), self.timeout
        self.connect_deadline = self.deadline = now + timeout
        # A release waits for every connection: a vote that is not released blocks the node for the rest of its ttl.
        self.straggler_deadline = now + timeout * (1 if self.kind == "release" else STRAGGLER_SHARE)
        return now

    def _begin(self, now: float) -> None:
        """Send the request to connected nodes, and start to connect to the other nodes. ``now``: monotonic seconds.

        Nodes that are down are skipped, unless the outcome needs them.
        """
        missing = []
        for slot, node in enumerate(self.nodes):
            node.begin_request(now)
            connection = node.take_in_flight(self.acquisition_id) if self.acquisition_id else None
            if connection is None and not node.keeper.failure(now):
                connection = node.idle()
            if connection is None:
                missing.append(slot)
            else:
                self._send(slot, connection, now)
        if missing:
            needed = len(self.nodes) - len(missing) < self._nodes_needed()
            for slot in missing:
                self.connecting.add(slot)
                keeper = self.nodes[slot].keeper
                if needed or not keeper.failure(now):
                    keeper.connect()
                else:
                    self._not_connected(slot)

    def _nodes_needed(self) -> int:
        """Return how many nodes must be connected so that the request can succeed; 0 if no reply is awaited.

        This is the smallest number of nodes that can decide the outcome if all others fail, but at least a majority.
        """
        count, fault = len(self.nodes), Fault(TimeoutError())
        if self.decided([None] * count):
            return 0
        candidates = range(self.majority, count)
        return next((few for few in candidates if not self.decided([None] * few + [fault] * (count - few))), count)

    def _send_to_connected(self) -> None:
        """Send the request to newly connected nodes. Record a fault for nodes that take too long to connect."""
        now = time.monotonic()
        certain = self.decided(self.replies)
        for slot in tuple(self.connecting):
            node, keeper = self.nodes[slot], self.nodes[slot].keeper
            opening = keeper.is_connecting
            if (connection := node.idle()) is not None:
                self.connecting.remove(slot)
                self.deadline = min(now + self.timeout, self.end)
                self._send(slot, connection, now)
            elif now >= self.connect_deadline or (
                keeper.is_down and (certain or (not opening and keeper.failure(now)))
            ):
                self._not_connected(slot)
            elif certain and now >= self.straggler_deadline:
                self._not_sent(slot)  # the node may be slow only: its reply stays unknown
            elif not opening and not node.is_full:
                keeper.connect()  # another request has used the connection that was opened

    def _send(self, slot: int, connection: InFlightConnection, now: float) -> None:
        try:
            connection.send(calls_of(self.requests[slot]), now, self.kind)
        except (RedisError, OSError) as error:
            self._broken(slot, connection, error)
        else:
            number = connection.fileno()
            self.open[number] = slot, connection
            self.poll.register(number, READABLE)

    def _receive(self, number: int) -> None:
        """Read the replies on the connection with file descriptor ``number``, if they are complete."""
        slot, connection = self.open[number]
        try:
            answers = connection.receive()
        except ReplyIncomplete:
            return
        except (RedisError, OSError) as error:
            self._close(number)
            self._broken(slot, connection, error)
            return
        self._close(number)
        connection.checkin()
        if slot in self.closed and self.kind == "release":  # "not held" now: an earlier try may have released it
            answers = [self.closed[slot][-1] if answer in (0, -1) else answer for answer in answers]
        self.replies[slot] = answers if isinstance(self.requests[slot], Batch) else answers[0]

    def _close(self, number: int) -> None:
        self.poll.unregister(number)
        del self.open[number]

    def _broken(self, slot: int, connection: InFlightConnection, error: Exception) -> None:
        """Handle ``error`` on ``connection``: repeat the request of ``slot``, or record a fault as its reply.

        The request is repeated on a new connection if ``connection`` was closed or dropped while idle, but on at most
        `MAX_CONNECTIONS` connections.
        """
        fault = connection.fail(error)
        closed = *self.closed.get(slot, ()), fault
        if fault.stale and len(closed) < MAX_CONNECTIONS:
            self.closed[slot] = closed
            self.connecting.add(slot)
            self.nodes[slot].keeper.connect()
        else:
            self._failed(slot, connection, fault)

    def _repeat_silent(self) -> bool:
        """Repeat the requests on formerly idle connections that give no reply. Returns whether there are any.

        A firewall may have dropped these connections. The requests are repeated once, on new connections, within the
        timeout.
        """
        silent = [number for number, (_, each) in self.open.items() if each.connection.was_idle]
        if not silent or self.end < math.inf:
            return False
        self.end = self._set_deadlines() + self.timeout
        for number in silent:
            slot, connection = self.open[number]
            self._close(number)
            connection.compensation = None  # it could arrive after the repeated request
            self._broken(slot, connection, ConnectionSilent("no reply in time"))
        return True

    def _failed(self, slot: int, connection: InFlightConnection, fault: Fault) -> None:
        self.replies[slot] = fault
        self.nodes[slot].mark_failed(connection, fault)

    def _not_connected(self, slot: int) -> None:
        """Record a fault as the reply of a node without a connection. A release is retried in the background."""
        self.replies[slot] = self.nodes[slot].not_connected(self.closed[slot][-1] if slot in self.closed else None)
        self._not_sent(slot)

    def _not_sent(self, slot: int) -> None:
        """Stop waiting for a connection to the node. A release is retried in the background."""
        self.connecting.remove(slot)
        if self.kind == "release":
            self.nodes[slot].keeper.repeat(calls_of(self.requests[slot]))

    def _detach(self) -> None:
        """Stop waiting for outstanding replies, and keep their connections for later requests.

        The outstanding replies on a connection are read before the reply to a later request.
        """
        while self.open:  # each entry is removed before it is kept: after an interrupt, `steps` closes the entries left
            number, (slot, connection) = self.open.popitem()
            self.poll.unregister(number)
            connection.detach()
            self.nodes[slot].keep_in_flight(self.acquisition_id, connection)
