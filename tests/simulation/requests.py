"""Requests of each kind, until they are answered or given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django_redlock.core.flow.requests import AfterWait, Block, BlockThenEval, EvalAndWait, EvalScript, Fault

from .network import Connection, Message, Then
from .replication import Member

if TYPE_CHECKING:
    from .performer import Performer

Work = Callable[[Then], None]


class Request(Message):
    """One request. If it is given up, it is undone when possible."""

    __slots__ = "over", "performer", "then", "until"

    def __init__(self, performer: Performer, connection: Connection, seconds: float, then: Then) -> None:
        super().__init__(connection)
        self.performer = performer
        self.until = performer.world.now + performer.timeout + seconds
        self.then = then
        self.over = False

    def undo(self) -> Work | None:
        """Returns the work that undoes this request on the server. ``None``: there is nothing to undo."""
        return None

    def again(self) -> Then:
        """Returns the handler for a fault of a reused connection."""
        return self.then

    def certain(self) -> bool:
        """Whether the request may stay in flight: the outcome is decided, and a release uses this connection."""
        return False

    def answered(self, reply: Any) -> None:
        self.performer.unanswered.pop(self, None)
        if not self.over:
            self.over = True
            self.then(reply)

    def give_up(self, _: None = None) -> None:
        """Give the request up: no reply came in time, or no caller waits for the reply."""
        if not self.over and not self.certain():
            if (undo := self.undo()) is not None:
                self.connection.send(Undoing(self.connection, undo))
            self.answered(self._fault(TimeoutError("no reply in time")))

    def broken(self) -> None:
        """Handle a broken connection. A random number decides whether it was a new connection."""
        stale = self.performer.world.chance(0.5)
        if stale:
            self.then = self.again()
        self.answered(self._fault(ConnectionError("closed"), stale=stale))

    def _fault(self, error: OSError, *, stale: bool = False) -> Fault:
        return Fault(error, stale, self.connection.server.name, self.performer.passing)

    def _undoing(self, run: EvalScript) -> Work | None:
        return partial(self._free, run) if run.compensation is not None else None

    def _free(self, run: EvalScript, reply: Then) -> None:
        if run.compensation is not None:
            reply(self.connection.server.run(run.compensation()))


class Undoing(Message):
    """A message that undoes a request that was given up."""

    __slots__ = ("work",)

    def __init__(self, connection: Connection, work: Work) -> None:
        super().__init__(connection)
        self.work = work


class Runs(Request):
    """Scripts on one node. Most requests are of this kind."""

    __slots__ = "_certain", "_family", "_node", "_runs"

    def __init__(
        self,
        performer: Performer,
        connection: Connection,
        then: Then,
        node: int,
        runs: Sequence[EvalScript],
        family: bytes,
        certain: Callable[[], bool] | None,
    ) -> None:
        super().__init__(performer, connection, 0.0, then)
        self._node = node
        self._runs = runs
        self._family = family
        self._certain = certain

    def work(self, reply: Then) -> None:
        reply(list(map(self.connection.server.run, self._runs)))

    def undo(self) -> Work | None:
        return self._undoing(self._runs[0])

    def again(self) -> Then:
        return partial(self._repeat, self.then)

    def _repeat(self, then: Then, fault: Fault) -> None:
        connection = self.performer.connect(self._node, self._family)
        heard = partial(_doubt, then, fault)
        args = self.performer, connection, heard, self._node, self._runs, self._family, self._certain
        self.performer.send(Once(*args))

    def certain(self) -> bool:
        return self._certain is not None and self._certain()


class Once(Runs):
    """Scripts that are not sent again: a retry on a new connection, or SET NX, after which the flow sends a script."""

    __slots__ = ()

    def again(self) -> Then:
        return self.then


def _doubt(then: Then, repeated: Fault, reply: Any) -> None:
    """Pass on the reply to a repeated request.

    A refusal becomes the fault, because the first request may have succeeded.
    """
    then(reply if type(reply) is Fault else [repeated if each in (0, -1) else each for each in reply])


class Blocked(Request):
    """Blocks until an item is pushed to a list."""

    __slots__ = ("_request",)

    def __init__(self, performer: Performer, connection: Connection, request: Block, then: Then) -> None:
        super().__init__(performer, connection, request.seconds, then)
        self._request = request

    def work(self, reply: Then) -> None:
        key, seconds, _, more = self._request
        self.connection.server.block((key, *more), seconds, self.performer.there, reply)


class Awaited(Request):
    """Blocks until an item is pushed to a list, then runs a script."""

    __slots__ = "_ended", "_request"

    def __init__(self, performer: Performer, connection: Connection, request: BlockThenEval, then: Then) -> None:
        super().__init__(performer, connection, request.seconds, then)
        self._request = request
        self._ended = False

    def work(self, reply: Then) -> None:
        run, signal, seconds, more = self._request
        server = self.connection.server
        asked = server.clock.micros()

        def unblocked(_: bytes | None) -> None:
            if not self._ended:
                self._ended = True
                reply(AfterWait(server.run(run), (server.clock.micros() - asked) / 1e6))

        server.block((signal, *more), seconds, self.performer.there, unblocked)

    def undo(self) -> Work:
        return self._forget

    def _forget(self, reply: Then) -> None:
        # A server forgets the pending commands of a blocked client that closes its connection.
        if self._ended:
            self._free(self._request.script_call, reply)
        self._ended = True


class Acknowledged(Request):
    """Scripts on a primary, and the number of replicas that have acknowledged their writes."""

    __slots__ = ("_request",)

    def __init__(self, performer: Performer, connection: Connection, request: EvalAndWait, then: Then) -> None:
        super().__init__(performer, connection, request.seconds, then)
        self._request = request

    def work(self, reply: Then) -> None:
        runs, replicas, seconds = self._request
        server = self.connection.server
        replies = list(map(server.run, runs))
        first = replies[0]
        if isinstance(first, Fault):
            reply(first)
        elif (isinstance(first, list) and first[0] >= 2) or not isinstance(server, Member):
            reply((replies, 0))  # no write, or a server without replicas
        else:
            server.wait(replicas, seconds, lambda count: reply((replies, self.performer.count(count))))

    def undo(self) -> Work | None:
        return self._undoing(self._request.script_calls[0])
