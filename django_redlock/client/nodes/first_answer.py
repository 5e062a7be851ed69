"""Sends one question to several servers at the same time, and uses the first usable answer.

A separate thread asks each server, so that a silent server delays no answer. asyncio's default executor is not used,
because the application may have filled it. Threads are rarely needed: a process asks after its start, and after a
server has failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ...core.flow.requests import Flow
from ...core.process.fork import run_postponing
from ...core.process.mutex import new_mutex
from ...core.process.threads import Kind, start
from ..connect import AwaitFuture
from ..errors import caused_by, hint_of, timed_out
from ..pool import ServerPool
from ..resp import encode_command

T = TypeVar("T")
LONGEST_ANSWER = 4  # node timeouts in which a server has answered or failed: to look up its name, connect and reply
_PERMANENT = AuthenticationError, ResponseError  # a retry does not help if all servers give such an error


class _Question(Generic[T]):
    """One question to several servers. ``answers`` has the first answer, or is empty when all servers have failed.

    ``until``: the time until which further callers may share the question, in monotonic seconds.
    """

    def __init__(self, servers: Sequence[ServerPool], until: float) -> None:
        self.until = until
        self.answers: Future[list[T]] = Future()
        self.errors: dict[str, Exception | None] = {server.where: None for server in servers}


class FirstAnswer(Generic[T]):
    """Asks several servers one question. Callers that ask while the question is open share the answer.

    ``ask``: called with each server; returns its answer or raises redis-py's errors. ``use``: called with the answer
    that is used. ``seconds``: the longest wait of a caller. An answer that arrives later is for the next caller.
    """

    def __init__(self, ask: Callable[[ServerPool], T], use: Callable[[T], None], seconds: float) -> None:
        self._ask = ask
        self._use = use
        self._seconds = seconds
        self._mutex = new_mutex()
        self._question: _Question[T] | None = None

    def get(self, servers: Sequence[ServerPool]) -> Flow[T]:
        """Ask ``servers``, and return the first answer. Raises redis-py's errors if there is none in time."""
        question = self._open_question(servers)
        yield AwaitFuture(question.answers, self._seconds)
        if question.answers.done() and (answers := question.answers.result()):
            return answers[0]
        errors = {where: each or RedisTimeoutError("no reply in time") for where, each in dict(question.errors).items()}
        message = "; ".join(f"{where}: {error}" for where, error in errors.items())
        if all(map(timed_out, errors.values())):
            raise RedisTimeoutError(message)
        common = (kind for kind in _PERMANENT if all(isinstance(error, kind) for error in errors.values()))
        raise next(common, RedisConnectionError)(message)

    def _open_question(self, servers: Sequence[ServerPool]) -> _Question[T]:
        now = time.monotonic()
        with self._mutex:
            question = self._question
            if question is None or question.answers.done() or now >= question.until:
                question = _Question(servers, now + LONGEST_ANSWER * self._seconds)
                for server in servers:
                    if start(Kind.CALL, run_postponing, self._ask_server, question, server) is None:
                        self._ask_server(question, server)
                self._question = question  # after the threads: an interrupted caller leaves no question that stays open
            return question

    def _ask_server(self, question: _Question[T], server: ServerPool) -> None:
        answers, error = [], None
        try:
            answers = [self._ask(server)]
        except Exception as raised:  # noqa: BLE001  (any error, also of a credential provider)
            hint = hint_of(raised, server.uses_tls)
            error = caused_by(type(raised)(f"{raised}{hint}"), raised) if hint else raised
            error.with_traceback(None)  # the traceback would keep the callers' locks alive
        with self._mutex:
            question.errors[server.where] = error
            if question.answers.done():
                return
            if answers:
                self._use(answers[0])
            if answers or None not in question.errors.values():
                question.answers.set_result(answers)


def replies_of(pool: ServerPool, *commands: str) -> list[Any]:
    """Send ``commands`` to the server of ``pool`` on a new connection, and return the list of replies.

    Raises redis-py's errors if the connection fails, if the replies don't arrive within the timeout of ``pool``, and if
    the first reply is an error. A later error reply is an exception in the list.
    """
    connection = pool.checkout_new()
    try:
        connection.send(b"".join([encode_command(*command.encode().split()) for command in commands]))
        replies = connection.receive(len(commands), time.monotonic() + pool.timeout)
    finally:
        pool.discard(connection)
    if isinstance(replies[0], Exception):
        raise replies[0]
    return replies


def decoded_host(name: bytes) -> str:
    """Decode the name or address of a host. Raises ``ValueError`` for an invalid name."""
    host = name.decode()
    host.encode("idna")
    return host
