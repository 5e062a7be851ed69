"""A request, until it is answered or given up."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django_redlock.core.flow.requests import Fault

from .network import Connection, Then, Work


class Request:
    """One request. If it is given up, ``undo`` follows it, if that is possible. ``repeat(then, fault)`` handles the
    fault of a reused connection. While ``certain()``, the request may stay in flight: the outcome is decided, and a
    release uses this connection.
    """

    __slots__ = "certain", "connection", "over", "performer", "repeat", "then", "undo", "until", "work"

    def __init__(
        self,
        performer: Any,
        connection: Connection,
        then: Then,
        work: Work,
        seconds: float = 0.0,
        undo: Work | None = None,
        repeat: Callable[[Then, Fault], None] | None = None,
        certain: Callable[[], bool] | None = None,
    ) -> None:
        self.performer = performer
        self.connection = connection
        self.until = performer.world.now + performer.timeout + seconds
        self.then = then
        self.work = work
        self.undo = undo
        self.repeat = repeat
        self.certain = certain
        self.over = False

    def again(self) -> Then:
        return self.then if self.repeat is None else partial(self.repeat, self.then)

    def answered(self, reply: Any) -> None:
        self.performer.unanswered.pop(self, None)
        if not self.over:
            self.over = True
            self.then(reply)

    def give_up(self, _: None = None) -> None:
        """Give the request up: no reply came in time, or no caller waits for the reply."""
        if not self.over and not (self.certain and self.certain()):
            if self.undo is not None:
                self.connection.send(self.undo)
            self.answered(self._fault(TimeoutError("no reply in time")))

    def broken(self) -> None:
        """Handle a broken connection. A random number decides whether it was a new connection."""
        stale = self.performer.world.chance(0.5)
        if stale:
            self.then = self.again()
        self.answered(self._fault(ConnectionError("closed"), stale=stale))

    def _fault(self, error: OSError, *, stale: bool = False) -> Fault:
        return Fault(error, stale, self.connection.server.name, self.performer.passing)
