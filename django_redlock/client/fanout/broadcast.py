"""One request on its way to several nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Protocol

from redis.exceptions import RedisError

from ...core.flow.requests import Batch, EvalScript, Fault, SendToAll
from ..deadlines import ReplyIncomplete
from .connector import Connector
from .in_flight import READABLE, InFlightConnection
from .missed_releases import MissedReleases

CONNECT_CHECK_SECONDS = 0.002  # seconds between two looks whether a node is connected by now
STRAGGLER_SHARE = 0.1  # of the node timeout: what a majority that has decided waits for the others to be connected
MAX_CONNECTIONS = 3  # connections on which a node is asked, where those before have broken

Ready = Iterable[tuple[int, int]]


class Poll(Protocol):
    """`select.poll`, or what an event loop has instead."""

    def register(self, number: int, events: int, /) -> None: ...

    def unregister(self, number: int, /) -> None: ...


def script_calls_of(ask: EvalScript | Batch) -> Sequence[EvalScript]:
    return (ask,) if isinstance(ask, EvalScript) else ask.script_calls


class Connections(Protocol):
    """The connections to the nodes of a quorum, as a broadcast uses them."""

    timeout: float
    connector: Connector
    missed_releases: MissedReleases

    def needed(self, count: int, decided: Callable[[Sequence[Any]], bool]) -> int: ...

    def idle(self, index: int) -> InFlightConnection | None: ...

    def is_full(self, index: int) -> bool: ...

    def not_connected(self, index: int) -> Fault: ...

    def mark_failed(self, index: int, runs: Sequence[EvalScript], failure: Fault) -> None: ...

    def keep_in_flight(self, family: bytes, index: int, line: InFlightConnection) -> None: ...

    def take_in_flight(self, family: bytes, index: int) -> InFlightConnection | None: ...


class Broadcast:
    """Sends a request to each node as soon as that is connected, and reads the replies as they come.

    Nothing in here blocks: `steps` says how long it would wait for one of the connections in ``poll``.
    """

    __slots__ = "acquisition_id", "coming", "decided", "fan_out", "open", "poll", "replies", "requests", "until"

    def __init__(self, fan_out: Connections, request: SendToAll, poll: Poll) -> None:
        self.fan_out = fan_out
        self.poll = poll
        self.requests, self.decided, self.acquisition_id = request
        self.replies: list[Any] = [None] * len(self.requests)
        self.open: dict[int, tuple[int, InFlightConnection]] = {}  # file descriptor -> place of the node, connection
        self.coming: dict[
            int, InFlightConnection | None
        ] = {}  # places of nodes to be connected, with a connection that has broken
        self.until = 0.0

    def steps(self) -> Generator[float, Ready, list[Any]]:
        """Yields the seconds to wait, is sent what can be read by then, and returns the replies."""
        began = time.monotonic()
        limit = self.until = began + self.fan_out.timeout
        # What frees a lock must reach every node that it can: a vote that is left behind stands for a ttl.
        frees = bool(self.acquisition_id) and script_calls_of(self.requests[0])[0].compensation is None
        patience = limit if frees else began + STRAGGLER_SHARE * self.fan_out.timeout
        open_, coming, decided, replies = self.open, self.coming, self.decided, self.replies
        try:
            self._begin(began)
            while coming or (open_ and not decided(replies)):
                left = max(0.0, self.until - time.monotonic())
                ready = yield min(left, CONNECT_CHECK_SECONDS) if coming else left
                for number, _ in ready:
                    self._receive(number)
                if coming:
                    self._connect(limit, patience)
                elif not left:
                    break
            if decided(replies):
                self._detach()
            return replies
        finally:
            for place in tuple(coming):
                self._not_connected(place)
            for number, (place, line) in open_.items():  # no answer in time, or interrupted
                self.poll.unregister(number)
                self._give_up(place, line, TimeoutError("no answer in time"))

    def _begin(self, now: float) -> None:
        """Ask those that are connected, and connect to the others."""
        party, family = self.fan_out, self.acquisition_id
        missing = []
        for place, ask in enumerate(self.requests):
            line = party.take_in_flight(family, ask.node) if family else None
            line = line or (None if party.connector.failure(ask.node, now) else party.idle(ask.node))
            if line is None:
                missing.append(place)
            else:
                self._send(place, line, now)
        if missing:
            needed = len(self.requests) - len(missing) < party.needed(len(self.requests), self.decided)
            for place in missing:
                self.coming[place] = None
                if needed or not party.connector.failure(self.requests[place].node, now):
                    party.connector.connect(self.requests[place].node)
                else:
                    self._not_connected(place)

    def _connect(self, limit: float, patience: float) -> None:
        """Ask those that are connected by now, and give up those for which nobody waits any longer."""
        dialer, now = self.fan_out.connector, time.monotonic()
        certain = self.decided(self.replies)
        for place, broken in tuple(self.coming.items()):
            node = self.requests[place].node
            dialing = dialer.is_connecting(node)
            if (line := self.fan_out.idle(node)) is not None:
                del self.coming[place]
                self.until = now + self.fan_out.timeout
                if broken is not None:
                    line.tries, line.first_fault = broken.tries + 1, broken.first_fault
                self._send(place, line, now)
            elif now >= (patience if certain else limit) or (
                dialer.is_down(node) and (certain or (not dialing and dialer.failure(node, now)))
            ):
                self._not_connected(place)
            elif not dialing and not self.fan_out.is_full(node):
                dialer.connect(node)  # another took the connection that had come

    def _send(self, place: int, line: InFlightConnection, now: float) -> None:
        ask = self.requests[place]
        self.fan_out.missed_releases.sent(self.acquisition_id, ask.node)
        try:
            line.send(script_calls_of(ask), now)
        except (RedisError, OSError) as error:
            self._broken(place, line, error)
        else:
            number = line.fileno()
            self.open[number] = place, line
            self.poll.register(number, READABLE)

    def _receive(self, number: int) -> None:
        """Read a node's answer, if all of it is there."""
        place, line = self.open[number]
        try:
            answers = line.receive()
        except ReplyIncomplete:
            return
        except (RedisError, OSError) as error:
            self._close(number)
            self._broken(place, line, error)
            return
        self._close(number)
        line.checkin()
        if line.first_fault:  # it may have been carried out before: then "nobody has it" says nothing
            answers = [line.first_fault if answer in (0, -1) else answer for answer in answers]
        self.replies[place] = answers if isinstance(self.requests[place], Batch) else answers[0]

    def _close(self, number: int) -> None:
        self.poll.unregister(number)
        del self.open[number]

    def _broken(self, place: int, line: InFlightConnection, error: Exception) -> None:
        """Ask once more on a new connection where one turned out to be closed: the node may well be there."""
        failure = line.fail(error)
        if failure.stale and line.tries < MAX_CONNECTIONS:
            line.first_fault = failure
            self.coming[place] = line
            self.fan_out.connector.connect(self.requests[place].node)
        else:
            self._failed(place, line, failure)

    def _give_up(self, place: int, line: InFlightConnection, error: Exception) -> None:
        self._failed(place, line, line.fail(error))

    def _failed(self, place: int, line: InFlightConnection, failure: Fault) -> None:
        self.replies[place] = failure
        self.fan_out.mark_failed(self.requests[place].node, line.script_calls, failure)

    def _not_connected(self, place: int) -> None:
        """The node can't be asked (once more)."""
        ask, broken = self.requests[place], self.coming.pop(place)
        self.replies[place] = self.fan_out.not_connected(ask.node)
        if broken is None:
            self.fan_out.missed_releases.not_sent(self.acquisition_id, script_calls_of(ask), ask.node)
        else:
            self.fan_out.missed_releases.add(broken.script_calls, ask.node)

    def _detach(self) -> None:
        """Nobody waits for what is outstanding: it is read before the connection's next use."""
        while self.open:  # one by one: what is closed if we are interrupted here must not be among them
            number, (place, line) = self.open.popitem()
            self.poll.unregister(number)
            line.detach()
            self.fan_out.keep_in_flight(self.acquisition_id, self.requests[place].node, line)
