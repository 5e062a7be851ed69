"""One request to many nodes: all are written before any is read, and what comes late is read before the next use.

A connection on which a reply is outstanding when the outcome is certain stays with the token that it was used for: what
follows for that token goes the same way, so that a release can't overtake the acquire that it undoes.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from ...core.flow.drivers import drive
from ...core.flow.requests import EvalScript, Fault, SendToAll
from ...core.fork import on_fork
from ..discovery import Node
from ..request import RELEASE_WINDOW
from .broadcast import Broadcast
from .connector import Connector
from .in_flight import InFlightConnection
from .missed_releases import MissedReleases


class FanOut:
    """The nodes of a quorum and the connections on which they still owe a reply.

    They are of no event loop: what one loop or thread has asked, another can take back, on the same connection.
    """

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self._nodes = nodes
        self.timeout = timeout
        self.connector = Connector(nodes, timeout, greeting)
        self._reset()
        on_fork(self._reset)  # the connections are the parent's

    def _reset(self) -> None:
        self._mutex = threading.RLock()  # reentrant: a signal's handler may use a lock too
        self.missed_releases = MissedReleases(self._nodes)
        self._in_flight: dict[tuple[bytes, int], InFlightConnection] = {}

    def perform(self, request: SendToAll) -> list[Any]:
        """Ask all, and wait until the outcome is certain or the time is up."""
        poll = select.poll()
        return drive(self.broadcast(request, poll).steps(), lambda seconds: poll.poll(seconds * 1000))

    def broadcast(self, request: SendToAll, poll: Any) -> Broadcast:
        """The request, to be carried out."""
        self.connector.wanted = now = time.monotonic()
        self._collect(now)
        return Broadcast(self, request, poll)

    def needed(self, count: int, decided: Callable[[Sequence[Any]], bool]) -> int:
        """On how many of ``count`` nodes the outcome depends: a majority, or more. 0: nobody waits for the answers."""
        if decided([None] * count):
            return 0
        absent = Fault(TimeoutError())
        enough = range(len(self._nodes) // 2 + 1, count)
        return next((some for some in enough if not decided([None] * some + [absent] * (count - some))), count)

    def idle(self, index: int) -> InFlightConnection | None:
        """A connection to the node that is open, and that nobody uses."""
        node = self._nodes[index]
        if (route := node.known_pool(b"")) is None:
            return None
        route = route.fanout_pool
        connection = route.idle()
        if (
            connection is None and route.is_full and self._in_flight
        ):  # some of those that are used may be answered by now
            self._collect(time.monotonic())
            connection = route.idle()
        return None if connection is None else InFlightConnection(node, route, connection)

    def is_full(self, index: int) -> bool:
        """Whether there may be no more connections to the node."""
        route = self._nodes[index].known_pool(b"")
        return route is not None and route.fanout_pool.is_full

    def not_connected(self, index: int) -> Fault:
        """Why the node can't be asked."""
        error = self.connector.failure(index, time.monotonic())
        reason = "all connections are in use" if error is None and self.is_full(index) else "not connected yet"
        return Fault(error or TimeoutError(reason), where=self._nodes[index].label)

    def mark_failed(self, index: int, runs: Sequence[EvalScript], failure: Fault) -> None:
        """The node did not answer. It is left out, unless it is only its connections that break: it takes new ones."""
        if not failure.stale:
            self.connector.mark_down(index, failure.error)
        self.missed_releases.add(runs, index)

    def keep_in_flight(self, family: bytes, index: int, line: InFlightConnection) -> None:
        """The node owes this family an answer on ``line``, where its next request goes as well."""
        self._in_flight[family or id(line).to_bytes(8, "big"), index] = line

    def take_in_flight(self, family: bytes, index: int) -> InFlightConnection | None:
        """The connection on which the node still owes this family an answer."""
        if not self._in_flight:
            return None
        with self._mutex:
            return self._in_flight.pop((family, index), None)

    def _collect(self, now: float) -> None:
        """Read the replies that came late; close what still owes one after the time that a node has."""
        if not self._in_flight:
            return
        due: dict[tuple[bytes, int], InFlightConnection] = {}
        with self._mutex:  # the others stay where a release that comes now looks for them
            for key, line in tuple(self._in_flight.items()):
                if self._in_flight.get(key) is not line:
                    continue  # a signal's handler has been here
                age = now - line.since
                if line.is_readable() or age > (RELEASE_WINDOW if line.kept_for_release else self.timeout):
                    if self._in_flight.pop(key, None) is line:
                        due[key] = line
                elif age > self.timeout:
                    self.connector.mark_down(key[1], TimeoutError("no answer in time"))
        for key, line in due.items():
            try:
                if line.is_readable():
                    line.receive()
                    line.checkin()
                else:
                    self.mark_failed(key[1], line.script_calls, line.fail(TimeoutError("no answer in time")))
            except (RedisError, OSError) as error:
                line.fail(error)
                self.missed_releases.add(line.script_calls, key[1])

    def close(self) -> None:
        """Close the connections on which replies are outstanding. What was asked there is carried out all the same."""
        with self._mutex:
            owing, self._in_flight = self._in_flight, {}
        for line in owing.values():
            line.discard()
        self.connector.close()
