"""What became of one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django_redlock.core.requests import Fault

from .network import Connection, Message, Then

if TYPE_CHECKING:
    from .performer import Performer


class Exchange(Message):
    """One request, until it is answered or given up: then it is undone if it can be."""

    __slots__ = "_again", "_certain", "_over", "_performer", "_then", "_undo", "until"

    def __init__(
        self,
        performer: Performer,
        connection: Connection,
        work: Callable[[Then], None],
        undo: Callable[[Then], None] | None,
        then: Then,
        until: float,
        certain: Callable[[], bool],
        again: Then | None,
    ) -> None:
        self.connection = connection
        self.work = work
        self._performer = performer
        self._undo = undo
        self._then = then
        self.until = until
        self._certain = certain  # it may be counted on, and what frees it will go the same way
        self._again = again  # a fresh connection may be tried
        self._over = False

    def answered(self, reply: Any) -> None:
        self._performer._unanswered.pop(self, None)
        if not self._over:
            self._over = True
            self._then(reply)

    def give_up(self, _: None = None) -> None:
        """No answer came in time, or nobody waits for it."""
        if not self._over and not self._certain():
            if self._undo is not None:
                self.connection.send(Message(self.connection, self._undo))
            self.answered(self._fault(TimeoutError("no answer in time")))

    def broken(self) -> None:
        """Whether a connection that is found broken was a fresh one is chance here."""
        stale = self._performer._world.chance(0.5)
        if stale and self._again is not None:
            self._then = self._again
        self.answered(self._fault(ConnectionError("closed"), stale=stale))

    def _fault(self, error: OSError, *, stale: bool = False) -> Fault:
        return Fault(error, stale, self.connection.server.name, self._performer._passing)


def never() -> bool:
    """Of what is not certain before there is an answer."""
    return False
