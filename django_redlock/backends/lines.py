"""A connection on which several replies may be outstanding."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from ..core.requests import Fault, Run
from .exchange import fault, judged
from .nodes import Node
from .patience import reply
from .peeking import numbers
from .routes import Route, socket_of
from .wire import packed, spelled_out

READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
_packed = lru_cache(maxsize=16)(lambda script, keys, args: packed(Run(script, keys, args)))  # nodes are asked alike


class Line:
    """One connection in use by `Party`: what was asked on it, and how many replies are to come."""

    answers: list[Any]  # of those that are waited for, those that have come
    spelled: bool  # the scripts were sent in full
    __slots__ = (
        "answers",
        "begun",
        "connection",
        "due",
        "lasting",
        "node",
        "repeated",
        "route",
        "runs",
        "since",
        "skip",
        "spelled",
        "tries",
        "undoing",
    )

    def __init__(self, node: Node, route: Route, connection: Any) -> None:
        self.node = node
        self.route = route
        self.connection = connection
        self.repeated: Fault | None = None  # why the question was asked once more
        self.tries = 1  # how often it was asked
        self.since = 0.0
        self.skip = 0  # replies to come that nobody waits for any more
        self.due = 0  # replies to come that are waited for
        self.begun = False  # reading what is outstanding, by the parser: not all of it is in the socket any more
        self.runs: Sequence[Run] = ()
        self.undoing: Callable[[], Run] | None = None
        self.lasting = False

    def send(self, runs: Sequence[Run], now: float) -> None:
        """Ask. Raises redis-py's errors."""
        self.runs, self.since = runs, now
        self.skip, self.due = self.skip + self.due, len(runs)
        self.undoing = runs[0].undoing
        if self.begun:
            self.answers, self.spelled = [], False
        self.connection.send_packed_command((b"".join(map(self._worded, runs)),), check_health=False)

    def _worded(self, run: Run) -> bytes:
        # In full the first time on a connection: "I don't know that script" may be an answer that nobody waits for.
        known = self.connection.__dict__.setdefault("redlock_scripts", set())
        if run.script.sha in known:
            return _packed(run.script, run.keys, run.args)
        known.add(run.script.sha)
        return spelled_out(run)

    def put_off(self) -> None:
        """Nobody waits for the answer now. What it grants may be counted on, so it is not to be undone any more.

        But what frees it has to go the same way: the connection lasts as long as that may come.
        """
        self.lasting, self.undoing = self.undoing is not None, None

    def receive(self, until: float = 0.0) -> list[Any]:
        """The replies that are waited for; those before them are thrown away. Raises redis-py's errors.

        `NotYet` when they aren't there by ``until``: then it can be called again.
        """
        if not self.begun and (found := numbers(socket_of(self.connection), self.skip + self.due)) is not None:
            answers, self.skip, self.due = found[self.skip :], 0, 0
            return answers
        if not self.begun:
            self.begun, self.spelled, self.answers = True, False, []
        self._read(until)
        unknown = [place for place, answer in enumerate(self.answers) if isinstance(answer, NoScriptError)]
        if unknown and not self.spelled:
            self._spell_out(unknown[0])
            self._read(until)
        self.begun = False
        return list(map(self._judged, self.runs, self.answers))

    def _read(self, until: float) -> None:
        while self.skip:
            self._next(until)
            self.skip -= 1
        while self.due:
            self.answers.append(self._next(until))
            self.due -= 1

    def _spell_out(self, first: int) -> None:
        # The server doesn't know the scripts yet. It has said so for each that follows; send them in full.
        runs = self.runs[first:]
        del self.answers[first:]
        self.due, self.spelled = len(runs), True
        self.connection.send_packed_command((b"".join(map(spelled_out, runs)),), check_health=False)

    def _judged(self, run: Run, reply: Any) -> Any:
        if isinstance(reply, Exception):
            return fault(self.node, reply, where=self.route.where)
        return judged(self.node, run, reply, self.route.where)

    def _next(self, until: float) -> Any:
        try:
            return reply(self.connection, until)
        except ResponseError as error:
            return error

    def fileno(self) -> int:
        """For poll."""
        return socket_of(self.connection).fileno()

    def answered(self) -> bool:
        """Whether something can be read without waiting."""
        poll = select.poll()
        poll.register(self.fileno(), READABLE)
        return bool(poll.poll(0))

    def give(self) -> None:
        """Hand the connection back, nothing outstanding."""
        self.route.give(self.connection)

    def drop(self) -> None:
        """Close the connection. What was asked last is undone behind it."""
        self.route.drop(self.connection, spelled_out(self.undoing()) if self.undoing else None)

    def lost(self, error: Exception) -> Fault:
        """Close after ``error``."""
        self.drop()
        return fault(self.node, error, connected=True, where=self.route.where)
