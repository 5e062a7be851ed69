"""Asks several servers one question at the same time, and uses the first usable answer.

Each server is asked in a separate thread, so that a silent server delays no answer. asyncio's default executor is not
used, because the application may have filled it. The threads cost little, because a process asks only after its start
and after a server has failed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ...core.process.mutex import new_mutex
from ...core.process.threads import Kind, start
from ..errors import caused_by, hint_of, timed_out
from ..loop_connection import LoopDeadline
from ..pool import ServerPool
from ..resp import encode_command

T = TypeVar("T")
_PERMANENT = AuthenticationError, ResponseError  # a retry does not help if all servers give such an error


class SecondBest(RedisError, Generic[T]):
    """Raised with an answer that is used only if no server has a better one. ``reason``: what makes it second best."""

    def __init__(self, answer: T, reason: str) -> None:
        super().__init__(reason)
        self.answer = answer


class Question(Generic[T]):
    """One question to several servers, and its outcome: an answer, or the error of each server.

    ``use`` is called with the answer that is used. The question is over with the first answer, when all servers have
    failed, or when a caller stops waiting and calls `result`. Callers wait up to ``seconds``.
    """

    def __init__(self, servers: Sequence[ServerPool], seconds: float, use: Callable[[T], None]) -> None:
        self.until = time.monotonic() + seconds
        self.over = False
        self._use = use
        self._errors: dict[str, Exception | None] = {server.where: None for server in servers}
        self._answers: list[T] = []
        self._callbacks: list[Callable[[], object]] = []
        self._mutex = new_mutex()

    def when_over(self, callback: Callable[[], object]) -> None:
        """Have ``callback`` called when a server has answered or all have failed, or at once if the question is over.

        If not called at once, ``callback`` runs in the thread that records the answer or the last error.
        """
        with self._mutex:
            if not self.over:
                self._callbacks.append(callback)
                return
        callback()

    def answered(self, answer: T) -> None:
        """Record the answer of a server, which ends the question. Does nothing if the question is over."""
        with self._mutex:
            if not self.over:
                self._answers.append(answer)
                self._use(answer)
                self._end()

    def failed(self, server: ServerPool, error: Exception) -> None:
        """Record the error of ``server``. The question ends when all servers have failed."""
        if hint := hint_of(error, server.uses_tls):
            error = caused_by(type(error)(f"{error}{hint}"), error)
        with self._mutex:
            self._errors[server.where] = error.with_traceback(None)  # the traceback would keep the callers' locks alive
            if not self.over and None not in self._errors.values():
                self._end()

    def _end(self) -> None:
        self.over = True
        for callback in self._callbacks:
            callback()

    def result(self) -> T:
        """End the question, and return the answer. Without an answer, return the first `SecondBest` answer.

        Raises redis-py's errors if there is neither.
        """
        with self._mutex:
            self.over = True
            second_best = [error for error in self._errors.values() if isinstance(error, SecondBest)]
            if second_best and not self._answers:
                self._answers.append(second_best[0].answer)
                self._use(second_best[0].answer)
            if self._answers:
                return self._answers[0]
            errors = {where: error or RedisTimeoutError("no reply in time") for where, error in self._errors.items()}
        message = "; ".join(f"{where}: {error}" for where, error in errors.items())
        if all(map(timed_out, errors.values())):
            raise RedisTimeoutError(message)
        common = (kind for kind in _PERMANENT if all(isinstance(error, kind) for error in errors.values()))
        raise next(common, RedisConnectionError)(message)


class FirstAnswer(Generic[T]):
    """Asks several servers one question. Callers that ask while the question is open share the answer.

    ``ask`` is called with each server, and returns its answer or raises redis-py's errors. ``use`` is called with the
    answer that is used. Callers wait up to ``seconds``.
    """

    def __init__(self, ask: Callable[[ServerPool], T], use: Callable[[T], None], seconds: float) -> None:
        self._ask = ask
        self._use = use
        self._seconds = seconds
        self._mutex = new_mutex()
        self._pending: set[ServerPool] = set()  # servers that still owe an answer, perhaps to an earlier question
        self._question = Question[T]((), 0.0, use)
        self._question.over = True

    def get(self, servers: Sequence[ServerPool]) -> T:
        """Ask ``servers``, block until the question is over, and return the answer. Raises redis-py's errors."""
        question, over = self._open_question(servers), SimpleQueue[None]()
        question.when_over(lambda: over.put(None))
        with suppress(Empty):
            over.get(timeout=max(0.0, question.until - time.monotonic()))
        return question.result()

    async def aget(self, servers: Sequence[ServerPool]) -> T:
        """`get` for asyncio."""
        question, loop, over = self._open_question(servers), asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(over.set)

        question.when_over(notify)
        with suppress(TimeoutError):
            async with LoopDeadline(max(0.0, question.until - time.monotonic())):
                await over.wait()
        return question.result()

    def _open_question(self, servers: Sequence[ServerPool]) -> Question[T]:
        unasked: list[ServerPool] = []
        try:
            with self._mutex:
                question = self._question
                if not question.over and time.monotonic() < question.until:
                    return question
                unasked = [server for server in servers if server not in self._pending]
                self._pending.update(unasked)
                question = self._question = Question(servers, self._seconds, self._use)
            while unasked:
                if start(Kind.CALL, self._ask_server, unasked[0], caller=threading.get_ident()) is None:
                    self._ask_server(unasked[0])
                del unasked[0]
        except BaseException:  # interrupted: the next question is put to these servers, too
            for server in unasked:
                interrupted = self._question_for(server)
                interrupted.until = 0.0
                interrupted.failed(server, RedisConnectionError("interrupted before it was asked"))
            raise
        return question

    def _ask_server(self, server: ServerPool) -> None:
        try:
            answer = self._ask(server)
        except Exception as error:  # noqa: BLE001  (any error, also of a credential provider)
            self._question_for(server).failed(server, error)
        else:
            self._question_for(server).answered(answer)

    def _question_for(self, server: ServerPool) -> Question[T]:
        """Record that ``server`` has answered or failed, and return the newest question.

        The answer or error counts for this question, even if the server was asked for an earlier one and is late.
        """
        with self._mutex:
            self._pending.discard(server)
            return self._question


def replies_of(pool: ServerPool, timeout: float, *commands: str) -> list[Any]:
    """Send ``commands`` to the server of ``pool`` on a new connection, and return the list of replies.

    The replies must arrive within ``timeout`` seconds. If the first reply is an error, it is raised. A later error
    reply is an exception in the list. Also raises redis-py's errors if the connection fails or a reply is late.
    """
    connection = pool.connect()
    try:
        connection.send(b"".join([encode_command(*command.encode().split()) for command in commands]))
        replies = connection.receive(len(commands), time.monotonic() + timeout)
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
