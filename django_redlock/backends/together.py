"""One request to many nodes: all are written before any is read, and what comes late is read before the next use.

A connection on which a reply is outstanding when the outcome is certain stays with the token that it was used for: what
follows for that token goes the same way, so that a release can't overtake the acquire that it undoes.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from redis.exceptions import RedisError

from ..core.fork import on_fork
from ..core.requests import Batch, Fault, Run, Together
from .arrears import Arrears
from .dialing import PATIENCE, Dialer
from .exchange import LINGER, fault
from .lines import READABLE, Line
from .nodes import Node
from .patience import NotYet

LOOK = 0.005  # seconds between two looks whether a node is connected by now


class Party:
    """The nodes of a quorum and the connections on which they still owe a reply."""

    def __init__(self, nodes: Sequence[Node], timeout: float) -> None:
        self._nodes = nodes
        self._timeout = timeout
        self.dialer = Dialer(nodes, timeout)
        self._begin()
        on_fork(self._begin)  # the connections are the parent's

    def _begin(self) -> None:
        self._mutex = threading.RLock()  # reentrant: a signal's handler may use a lock too
        self.arrears = Arrears(self._nodes)
        self._owing: dict[tuple[bytes, int], Line] = {}

    def perform(self, request: Together) -> list[Any]:
        """Ask all, and wait until the outcome is certain or the time is up."""
        asks, decided, family = request
        now = time.monotonic()
        self._collect(now)
        replies: list[Any] = [None] * len(asks)
        open_: dict[int, tuple[int, Line]] = {}
        coming: list[int] = []  # places of nodes to which a connection is under way
        poll = select.poll()

        def await_(place: int, line: Line) -> None:
            number = line.fileno()
            open_[number] = place, line
            poll.register(number, READABLE)

        def begin(lines: Iterable[tuple[int, Line | Fault | None]]) -> None:
            coming.clear()
            for place, line in lines:
                if line is None:
                    coming.append(place)
                    continue
                sent = self._send(line, family, asks[place], now)
                if isinstance(sent, Line):
                    await_(place, sent)
                else:
                    replies[place] = sent

        try:
            begin(self._lines(asks, family, now, decided))
            deadline = time.monotonic() + self._timeout
            while (open_ or coming) and not decided(replies):
                left = max(0.0, deadline - time.monotonic())
                ready = poll.poll((min(left, LOOK) if coming else left) * 1000)
                if coming:
                    begin([(place, self._arrived(asks[place].node)) for place in coming])
                for number, _ in ready:
                    poll.unregister(number)
                    place, line = open_.pop(number)
                    again = self._receive(asks[place], line, replies, place)
                    if again is not None:
                        await_(place, again)
                if not left and not decided(replies):
                    return replies
            with self._mutex:
                while open_:  # one by one: what is closed below, if we are interrupted here, must not be among them
                    place, line = open_.popitem()[1]
                    line.put_off()
                    self._owing[family or id(line).to_bytes(8, "big"), asks[place].node] = line
            return replies
        finally:
            for place in coming:
                replies[place] = self._send(self._absent(asks[place].node), family, asks[place], now)
            for place, line in open_.values():  # no answer in time, or interrupted
                replies[place] = self._give_up(line, asks[place].node, TimeoutError("no answer in time"))

    def _lines(
        self, asks: Sequence[Run | Batch], family: bytes, now: float, decided: Callable[[Sequence[Any]], bool]
    ) -> list[tuple[int, Line | Fault | None]]:
        """For each ask the connection to use, or why there is none; ``None`` where it is under way."""
        lines: list[tuple[int, Line | Fault | None]] = []
        missing: list[int] = []
        for place, ask in enumerate(asks):
            line = self._owed(family, ask.node) if family and self._owing else None
            line = line or (None if self.dialer.failure(ask.node, now) else self._spare(ask.node))
            if line is None:
                missing.append(place)
            else:
                lines.append((place, line))
        if missing:
            wanted = self.needed(len(asks), decided) - len(lines)
            nodes = [asks[place].node for place in missing]
            # When a majority is there nobody waits long for the others, and those that failed lately are let be. But
            # what frees a lock must reach every node that it can: a vote that is left behind stands for a ttl.
            dial = nodes if wanted > 0 else [node for node in nodes if not self.dialer.failure(node, now)]
            patience = 1.0 if family and runs_of(asks[0])[0].undoing is None else PATIENCE
            lines += self._dialed(asks, missing, dial, wanted, now + self._timeout, patience)
        return lines

    def _owed(self, family: bytes, node: int) -> Line | None:
        """The connection on which the node still owes this family an answer."""
        with self._mutex:
            return self._owing.pop((family, node), None)

    def needed(self, count: int, decided: Callable[[Sequence[Any]], bool]) -> int:
        """On how many of ``count`` nodes the outcome depends: a majority, or more. 0: nobody waits for the answers."""
        if decided([None] * count):
            return 0
        absent = Fault(TimeoutError())
        enough = range(len(self._nodes) // 2 + 1, count)
        return next((some for some in enough if not decided([None] * some + [absent] * (count - some))), count)

    def _dialed(
        self,
        asks: Sequence[Run | Batch],
        missing: list[int],
        dial: list[int],
        wanted: int,
        until: float,
        patience: float,
    ) -> Iterator[tuple[int, Line | Fault | None]]:
        """Dial until ``wanted`` of the missing are there: another thread may take what was dialled for both."""
        while True:
            self.dialer.dial(dial, wanted, patience)
            found = {place: line for place in missing if (line := self._spare(asks[place].node))}
            yield from found.items()
            missing, wanted = [place for place in missing if place not in found], wanted - len(found)
            now = time.monotonic()
            dial = [node for place in missing if not self.dialer.failure(node := asks[place].node, now)]
            if wanted <= 0 or not dial or now >= until:
                break
        yield from ((place, self._arrived(asks[place].node)) for place in missing)

    def _arrived(self, index: int) -> Line | Fault | None:
        """What became of the attempt to connect; ``None``: it goes on, or begins anew where another took what came."""
        if self.dialer.failure(index, time.monotonic()):
            return self._absent(index)
        if (line := self._spare(index)) is None:
            self.dialer.dial((index,), 0, 0.0)
        return line

    def _spare(self, index: int) -> Line | None:
        node = self._nodes[index]
        route = node.known(b"")
        connection = route.spare() if route else None
        return Line(node, route, connection) if route and connection else None

    def _absent(self, index: int) -> Fault:
        error = self.dialer.failure(index, time.monotonic()) or TimeoutError("not connected yet")
        return Fault(error, where=self._nodes[index].label)

    def _send(self, line: Line | Fault, family: bytes, ask: Run | Batch, now: float) -> Line | Fault:
        if isinstance(line, Fault):
            self.arrears.absent(family, runs_of(ask), ask.node)
            return line
        self.arrears.sent(family, ask.node)
        try:
            line.send(runs_of(ask), now)
        except (RedisError, OSError) as error:
            return self._again(line, ask, error)
        return line

    def _receive(self, ask: Run | Batch, line: Line, replies: list[Any], place: int) -> Line | None:
        """Read the answer into ``replies``; or the line on which it is still to come, if need be a new one."""
        try:
            answers = line.receive()
        except NotYet:
            return line
        except (RedisError, OSError) as error:
            again = self._again(line, ask, error)
            if isinstance(again, Line):
                return again
            replies[place] = again
            return None
        line.give()
        if line.repeated:  # it may have been carried out before: then "nobody has it" says nothing
            answers = [line.repeated if answer in (0, -1) else answer for answer in answers]
        replies[place] = answers if isinstance(ask, Batch) else answers[0]
        return None

    def _again(self, line: Line, ask: Run | Batch, error: Exception) -> Line | Fault:
        """Ask once more, on a new connection, where an idle one turned out to be closed."""
        failure = self._give_up(line, ask.node, error)
        if not failure.stale:
            return failure
        try:
            route = line.node.find(b"")
            fresh = Line(line.node, route, route.connect(), failure)
            fresh.send(runs_of(ask), time.monotonic())
        except (RedisError, OSError) as second:
            self.dialer.leave_out(ask.node, second)
            self.arrears.missed(runs_of(ask), ask.node)
            return fault(line.node, second)
        return fresh

    def _give_up(self, line: Line, index: int, error: Exception) -> Fault:
        failure = line.lost(error)
        if not failure.stale:
            self.dialer.leave_out(index, failure.error)
            self.arrears.missed(line.runs, index)
        return failure

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
                if line.answered() or age > (LINGER if line.lasting else self._timeout):
                    if self._owing.pop(key, None) is line:
                        due[key] = line
                elif age > self._timeout:
                    self.dialer.leave_out(key[1], TimeoutError("no answer in time"))
        for key, line in due.items():
            try:
                if line.answered():
                    line.receive()
                    line.give()
                else:
                    self._give_up(line, key[1], TimeoutError("no answer in time"))
            except (RedisError, OSError) as error:
                line.lost(error)
                self.arrears.missed(line.runs, key[1])

    def close(self) -> None:
        """Close the connections on which replies are outstanding. What was asked there is carried out all the same."""
        with self._mutex:
            owing, self._owing = self._owing, {}
        for line in owing.values():
            line.drop()


def runs_of(ask: Run | Batch) -> Sequence[Run]:
    return (ask,) if isinstance(ask, Run) else ask.runs
