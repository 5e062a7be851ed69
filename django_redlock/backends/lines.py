"""A connection on which several replies may be outstanding."""

from __future__ import annotations

import select
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from ..core.requests import Fault, Run
from .exchange import fault
from .nodes import Node
from .peeking import numbers
from .routes import Route, socket_of
from .wire import packed, spelled_out

READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
_packed = lru_cache(maxsize=16)(lambda script, keys, args: packed(Run(script, keys, args)))  # nodes are asked alike


class Line:
    """One connection in use by `Party`: what was asked on it, and how many replies are to come."""

    __slots__ = ("connection", "due", "lasting", "node", "repeated", "route", "runs", "since", "skip", "undo")

    def __init__(self, node: Node, route: Route, connection: Any, repeated: Fault | None = None) -> None:
        self.node = node
        self.route = route
        self.connection = connection
        self.repeated = repeated  # why the question was asked a second time
        self.since = 0.0
        self.skip = 0  # replies to come that nobody waits for any more
        self.due = 0  # replies to come that are waited for
        self.runs: Sequence[Run] = ()
        self.undo: Run | None = None
        self.lasting = False

    def send(self, runs: Sequence[Run], now: float) -> None:
        """Ask. Raises redis-py's errors."""
        self.runs, self.since = runs, now
        self.skip, self.due = self.skip + self.due, len(runs)
        self.undo = runs[0].undo
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
        self.lasting, self.undo = self.undo is not None, None

    def receive(self) -> list[Any]:
        """The replies that are waited for; those before them are thrown away. Raises redis-py's errors."""
        if (found := numbers(socket_of(self.connection), self.skip + self.due)) is not None:
            answers, self.skip, self.due = found[self.skip :], 0, 0
            return answers
        self.drain()
        replies: list[Any] = []
        for index in range(len(self.runs)):
            reply = self._read()
            self.due -= 1
            if isinstance(reply, NoScriptError):
                return replies + self._spell_out(self.runs[index:])
            replies.append(self._judged(reply))
        return replies

    def drain(self) -> None:
        """Read what nobody waits for."""
        while self.skip:
            self._read()
            self.skip -= 1

    def _spell_out(self, runs: Sequence[Run]) -> list[Any]:
        # The server doesn't know the scripts yet. It says so for each that follows; then send them in full.
        while self.due:
            self._read()
            self.due -= 1
        self.due = len(runs)
        self.connection.send_packed_command((b"".join(map(spelled_out, runs)),), check_health=False)
        replies = []
        for _ in runs:
            replies.append(self._judged(self._read()))
            self.due -= 1
        return replies

    def _judged(self, reply: Any) -> Any:
        return fault(self.node, reply, where=self.route.where) if isinstance(reply, Exception) else reply

    def _read(self) -> Any:
        try:
            return self.connection.read_response(disable_decoding=True, disconnect_on_error=False)
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
        self.route.drop(self.connection, spelled_out(self.undo) if self.undo else None)

    def lost(self, error: Exception) -> Fault:
        """Close after ``error``."""
        self.drop()
        return fault(self.node, error, self.repeated is None, self.route.where)
