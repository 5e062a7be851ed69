"""What became of one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django_redlock.core.requests import Fault

from .network import Connection, Then

if TYPE_CHECKING:
    from .performer import Performer


class Exchange:
    """One request, until it is answered or given up: then it is undone if it can be."""

    __slots__ = "_certain", "_connection", "_over", "_performer", "_then", "_undo", "until"

    def __init__(
        self,
        performer: Performer,
        connection: Connection,
        undo: Callable[[Then], None] | None,
        then: Then,
        until: float,
        certain: Callable[[], bool],
    ) -> None:
        self._performer = performer
        self._connection = connection
        self._undo = undo
        self._then = then
        self.until = until
        self._certain = certain  # it may be counted on, and what frees it will go the same way
        self._over = False

    def end(self, reply: Any) -> None:
        """Hand on what came of it, the first time."""
        self._performer._unanswered.pop(self, None)
        if not self._over:
            self._over = True
            self._then(reply)

    def give_up(self, _: None = None) -> None:
        """No answer came in time, or nobody waits for it."""
        if not self._over and not self._certain():
            if self._undo is not None:
                self._connection.send(self._undo, _ignored, _nothing)
            self._fail(TimeoutError("no answer in time"), stale=False)

    def broken(self) -> None:
        """Whether a connection that is found broken was a fresh one is chance here."""
        self._fail(ConnectionError("closed"), stale=self._performer._world.chance(0.5))

    def _fail(self, error: OSError, *, stale: bool) -> None:
        self.end(Fault(error, stale, self._connection.server.name, self._performer._passing))


def never() -> bool:
    """Of what is not certain before there is an answer."""
    return False


def _ignored(reply: Any) -> None:
    del reply


def _nothing() -> None:
    pass
