"""One request on its way to several nodes."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from redis.exceptions import RedisError

from ..core.requests import Batch, Fault, Run, Together
from .lines import READABLE, Line
from .patience import NotYet

if TYPE_CHECKING:
    from .together import Party

LOOK = 0.002  # seconds between two looks whether a node is connected by now
PATIENCE = 0.1  # of the node timeout: what a majority that has decided waits for the others to be connected
TRIES = 3  # connections on which a node is asked, where those before have broken

Ready = Iterable[tuple[int, int]]


class Poll(Protocol):
    """`select.poll`, or what an event loop has instead."""

    def register(self, number: int, events: int, /) -> None: ...

    def unregister(self, number: int, /) -> None: ...


def runs_of(ask: Run | Batch) -> Sequence[Run]:
    return (ask,) if isinstance(ask, Run) else ask.runs


class Broadcast:
    """Sends a request to each node as soon as that is connected, and reads the replies as they come.

    Nothing in here blocks: `steps` says how long it would wait for one of the connections in ``poll``.
    """

    __slots__ = "asks", "coming", "decided", "family", "open", "party", "poll", "replies", "until"

    def __init__(self, party: Party, request: Together, poll: Poll) -> None:
        self.party = party
        self.poll = poll
        self.asks, self.decided, self.family = request
        self.replies: list[Any] = [None] * len(self.asks)
        self.open: dict[int, tuple[int, Line]] = {}  # file descriptor -> place of the node, connection
        self.coming: dict[int, Line | None] = {}  # places of nodes to be connected, with a connection that has broken
        self.until = 0.0

    def steps(self) -> Generator[float, Ready, list[Any]]:
        """Yields the seconds to wait, is sent what can be read by then, and returns the replies."""
        began = time.monotonic()
        limit = self.until = began + self.party.timeout
        # What frees a lock must reach every node that it can: a vote that is left behind stands for a ttl.
        frees = bool(self.family) and runs_of(self.asks[0])[0].undoing is None
        patience = limit if frees else began + PATIENCE * self.party.timeout
        open_, coming, decided, replies = self.open, self.coming, self.decided, self.replies
        try:
            self._begin(began)
            while coming or (open_ and not decided(replies)):
                left = max(0.0, self.until - time.monotonic())
                ready = yield min(left, LOOK) if coming else left
                for number, _ in ready:
                    self._receive(number)
                if coming:
                    self._connect(limit, patience)
                elif not left:
                    break
            if decided(replies):
                self._put_off()
            return replies
        finally:
            for place in tuple(coming):
                self._absent(place)
            for number, (place, line) in open_.items():  # no answer in time, or interrupted
                self.poll.unregister(number)
                self._give_up(place, line, TimeoutError("no answer in time"))

    def _begin(self, now: float) -> None:
        """Ask those that are connected, and connect to the others."""
        party, family = self.party, self.family
        missing = []
        for place, ask in enumerate(self.asks):
            line = party.owed(family, ask.node) if family else None
            line = line or (None if party.dialer.failure(ask.node, now) else party.spare(ask.node))
            if line is None:
                missing.append(place)
            else:
                self._send(place, line, now)
        if missing:
            needed = len(self.asks) - len(missing) < party.needed(len(self.asks), self.decided)
            for place in missing:
                self.coming[place] = None
                if needed or not party.dialer.failure(self.asks[place].node, now):
                    party.dialer.dial(self.asks[place].node)
                else:
                    self._absent(place)

    def _connect(self, limit: float, patience: float) -> None:
        """Ask those that are connected by now, and give up those for which nobody waits any longer."""
        dialer, now = self.party.dialer, time.monotonic()
        certain = self.decided(self.replies)
        for place, broken in tuple(self.coming.items()):
            node = self.asks[place].node
            dialing = dialer.dialing(node)
            if (line := self.party.spare(node)) is not None:
                del self.coming[place]
                self.until = now + self.party.timeout
                if broken is not None:
                    line.tries, line.repeated = broken.tries + 1, broken.repeated
                self._send(place, line, now)
            elif now >= (patience if certain else limit) or (
                dialer.failing(node) and (certain or (not dialing and dialer.failure(node, now)))
            ):
                self._absent(place)
            elif not dialing and not self.party.full(node):
                dialer.dial(node)  # another took the connection that had come

    def _send(self, place: int, line: Line, now: float) -> None:
        ask = self.asks[place]
        self.party.arrears.sent(self.family, ask.node)
        try:
            line.send(runs_of(ask), now)
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
        except NotYet:
            return
        except (RedisError, OSError) as error:
            self._close(number)
            self._broken(place, line, error)
            return
        self._close(number)
        line.give()
        if line.repeated:  # it may have been carried out before: then "nobody has it" says nothing
            answers = [line.repeated if answer in (0, -1) else answer for answer in answers]
        self.replies[place] = answers if isinstance(self.asks[place], Batch) else answers[0]

    def _close(self, number: int) -> None:
        self.poll.unregister(number)
        del self.open[number]

    def _broken(self, place: int, line: Line, error: Exception) -> None:
        """Ask once more on a new connection where one turned out to be closed: the node may well be there."""
        failure = line.lost(error)
        if failure.stale and line.tries < TRIES:
            line.repeated = failure
            self.coming[place] = line
            self.party.dialer.dial(self.asks[place].node)
        else:
            self._failed(place, line, failure)

    def _give_up(self, place: int, line: Line, error: Exception) -> None:
        self._failed(place, line, line.lost(error))

    def _failed(self, place: int, line: Line, failure: Fault) -> None:
        self.replies[place] = failure
        self.party.failed(self.asks[place].node, line.runs, failure)

    def _absent(self, place: int) -> None:
        """The node can't be asked (once more)."""
        ask, broken = self.asks[place], self.coming.pop(place)
        self.replies[place] = self.party.absent(ask.node)
        if broken is None:
            self.party.arrears.absent(self.family, runs_of(ask), ask.node)
        else:
            self.party.arrears.missed(broken.runs, ask.node)

    def _put_off(self) -> None:
        """Nobody waits for what is outstanding: it is read before the connection's next use."""
        while self.open:  # one by one: what is closed if we are interrupted here must not be among them
            number, (place, line) = self.open.popitem()
            self.poll.unregister(number)
            line.put_off()
            self.party.owe(self.family, self.asks[place].node, line)
