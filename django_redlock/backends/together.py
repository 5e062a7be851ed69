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

from ..core.drivers import drive
from ..core.fork import on_fork
from ..core.requests import Fault, Run, Together
from .arrears import Arrears
from .broadcast import Broadcast
from .dialing import Dialer
from .exchange import LINGER
from .lines import Line
from .nodes import Node


class Party:
    """The nodes of a quorum and the connections on which they still owe a reply.

    They are of no event loop: what one loop or thread has asked, another can take back, on the same connection.
    """

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self._nodes = nodes
        self.timeout = timeout
        self.dialer = Dialer(nodes, timeout, greeting)
        self._begin()
        on_fork(self._begin)  # the connections are the parent's

    def _begin(self) -> None:
        self._mutex = threading.RLock()  # reentrant: a signal's handler may use a lock too
        self.arrears = Arrears(self._nodes)
        self._owing: dict[tuple[bytes, int], Line] = {}

    def perform(self, request: Together) -> list[Any]:
        """Ask all, and wait until the outcome is certain or the time is up."""
        poll = select.poll()
        return drive(self.broadcast(request, poll).steps(), lambda seconds: poll.poll(seconds * 1000))

    def broadcast(self, request: Together, poll: Any) -> Broadcast:
        """The request, to be carried out."""
        self.dialer.wanted = now = time.monotonic()
        self._collect(now)
        return Broadcast(self, request, poll)

    def needed(self, count: int, decided: Callable[[Sequence[Any]], bool]) -> int:
        """On how many of ``count`` nodes the outcome depends: a majority, or more. 0: nobody waits for the answers."""
        if decided([None] * count):
            return 0
        absent = Fault(TimeoutError())
        enough = range(len(self._nodes) // 2 + 1, count)
        return next((some for some in enough if not decided([None] * some + [absent] * (count - some))), count)

    def spare(self, index: int) -> Line | None:
        """A connection to the node that is open, and that nobody uses."""
        node = self._nodes[index]
        if (route := node.known(b"")) is None:
            return None
        route = route.for_many
        connection = route.spare()
        if connection is None and route.full and self._owing:  # some of those that are used may be answered by now
            self._collect(time.monotonic())
            connection = route.spare()
        return None if connection is None else Line(node, route, connection)

    def full(self, index: int) -> bool:
        """Whether there may be no more connections to the node."""
        route = self._nodes[index].known(b"")
        return route is not None and route.for_many.full

    def absent(self, index: int) -> Fault:
        """Why the node can't be asked."""
        error = self.dialer.failure(index, time.monotonic())
        reason = "all connections are in use" if error is None and self.full(index) else "not connected yet"
        return Fault(error or TimeoutError(reason), where=self._nodes[index].label)

    def failed(self, index: int, runs: Sequence[Run], failure: Fault) -> None:
        """The node did not answer. It is left out, unless it is only its connections that break: it takes new ones."""
        if not failure.stale:
            self.dialer.leave_out(index, failure.error)
        self.arrears.missed(runs, index)

    def owe(self, family: bytes, index: int, line: Line) -> None:
        """The node owes this family an answer on ``line``, where its next request goes as well."""
        self._owing[family or id(line).to_bytes(8, "big"), index] = line

    def owed(self, family: bytes, index: int) -> Line | None:
        """The connection on which the node still owes this family an answer."""
        if not self._owing:
            return None
        with self._mutex:
            return self._owing.pop((family, index), None)

    def _collect(self, now: float) -> None:
        """Read the replies that came late; close what still owes one after the time that a node has."""
        if not self._owing:
            return
        due: dict[tuple[bytes, int], Line] = {}
        with self._mutex:  # the others stay where a release that comes now looks for them
            for key, line in tuple(self._owing.items()):
                if self._owing.get(key) is not line:
                    continue  # a signal's handler has been here
                age = now - line.since
                if line.answered() or age > (LINGER if line.lasting else self.timeout):
                    if self._owing.pop(key, None) is line:
                        due[key] = line
                elif age > self.timeout:
                    self.dialer.leave_out(key[1], TimeoutError("no answer in time"))
        for key, line in due.items():
            try:
                if line.answered():
                    line.receive()
                    line.give()
                else:
                    self.failed(key[1], line.runs, line.lost(TimeoutError("no answer in time")))
            except (RedisError, OSError) as error:
                line.lost(error)
                self.arrears.missed(line.runs, key[1])

    def close(self) -> None:
        """Close the connections on which replies are outstanding. What was asked there is carried out all the same."""
        with self._mutex:
            owing, self._owing = self._owing, {}
        for line in owing.values():
            line.drop()
        self.dialer.close()
