"""A connection on which several replies may be outstanding."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from ...core.flow.requests import EvalScript, Fault
from ..deadlines import read_reply
from ..discovery import Node
from ..fast_reply import read_numbers
from ..pool import ServerPool, socket_of
from ..request import check_reply, fault_of
from ..resp import encode_eval, encode_evalsha

READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
_packed = lru_cache(maxsize=16)(
    lambda script, keys, args: encode_evalsha(EvalScript(script, keys, args))
)  # nodes are asked alike


class InFlightConnection:
    """One connection in use by `FanOut`: what was asked on it, and how many replies are to come."""

    answers: list[Any]  # of those that are waited for, those that have come
    sent_in_full: bool  # the scripts were sent in full
    __slots__ = (
        "answers",
        "compensation",
        "connection",
        "due",
        "first_fault",
        "kept_for_release",
        "node",
        "pool",
        "reading",
        "script_calls",
        "sent_in_full",
        "since",
        "tries",
        "unread",
    )

    def __init__(self, node: Node, pool: ServerPool, connection: Any) -> None:
        self.node = node
        self.pool = pool
        self.connection = connection
        self.first_fault: Fault | None = None  # why the question was asked once more
        self.tries = 1  # how often it was asked
        self.since = 0.0
        self.unread = 0  # replies to come that nobody waits for any more
        self.due = 0  # replies to come that are waited for
        self.reading = False  # reading what is outstanding, by the parser: not all of it is in the socket any more
        self.script_calls: Sequence[EvalScript] = ()
        self.compensation: Callable[[], EvalScript] | None = None
        self.kept_for_release = False

    def send(self, runs: Sequence[EvalScript], now: float) -> None:
        """Ask. Raises redis-py's errors."""
        self.script_calls, self.since = runs, now
        self.unread, self.due = self.unread + self.due, len(runs)
        self.compensation = runs[0].compensation
        if self.reading:
            self.answers, self.sent_in_full = [], False
        self.connection.send_packed_command((b"".join(map(self._encode, runs)),), check_health=False)

    def _encode(self, run: EvalScript) -> bytes:
        # In full the first time on a connection: "I don't know that script" may be an answer that nobody waits for.
        known = self.connection.__dict__.setdefault("redlock_scripts", set())
        if run.script.sha in known:
            return _packed(run.script, run.keys, run.args)
        known.add(run.script.sha)
        return encode_eval(run)

    def detach(self) -> None:
        """Nobody waits for the answer now. What it grants may be counted on, so it is not to be undone any more.

        But what frees it has to go the same way: the connection lasts as long as that may come.
        """
        self.kept_for_release, self.compensation = self.compensation is not None, None

    def receive(self, until: float = 0.0) -> list[Any]:
        """The replies that are waited for; those before them are thrown away. Raises redis-py's errors.

        `ReplyIncomplete` when they aren't there by ``until``: then it can be called again.
        """
        if not self.reading and (found := read_numbers(socket_of(self.connection), self.unread + self.due)) is not None:
            answers, self.unread, self.due = found[self.unread :], 0, 0
            return answers
        if not self.reading:
            self.reading, self.sent_in_full, self.answers = True, False, []
        self._read(until)
        unknown = [place for place, answer in enumerate(self.answers) if isinstance(answer, NoScriptError)]
        if unknown and not self.sent_in_full:
            self._resend_in_full(unknown[0])
            self._read(until)
        self.reading = False
        return list(map(self._check, self.script_calls, self.answers))

    def _read(self, until: float) -> None:
        while self.unread:
            self._next(until)
            self.unread -= 1
        while self.due:
            self.answers.append(self._next(until))
            self.due -= 1

    def _resend_in_full(self, first: int) -> None:
        # The server doesn't know the scripts yet. It has said so for each that follows; send them in full.
        runs = self.script_calls[first:]
        del self.answers[first:]
        self.due, self.sent_in_full = len(runs), True
        self.connection.send_packed_command((b"".join(map(encode_eval, runs)),), check_health=False)

    def _check(self, run: EvalScript, reply: Any) -> Any:
        if isinstance(reply, Exception):
            return fault_of(self.node, reply, where=self.pool.where)
        return check_reply(self.node, run, reply, self.pool.where)

    def _next(self, until: float) -> Any:
        try:
            return read_reply(self.connection, until)
        except ResponseError as error:
            return error

    def fileno(self) -> int:
        """For poll."""
        return socket_of(self.connection).fileno()

    def is_readable(self) -> bool:
        """Whether something can be read without waiting."""
        poll = select.poll()
        poll.register(self.fileno(), READABLE)
        return bool(poll.poll(0))

    def checkin(self) -> None:
        """Hand the connection back, nothing outstanding."""
        self.pool.checkin(self.connection)

    def discard(self) -> None:
        """Close the connection. What was asked last is undone behind it."""
        self.pool.discard(self.connection, encode_eval(self.compensation()) if self.compensation else None)

    def fail(self, error: Exception) -> Fault:
        """Close after ``error``."""
        self.discard()
        return fault_of(self.node, error, connected=True, where=self.pool.where)
