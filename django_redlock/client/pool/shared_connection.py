"""One asyncio connection that carries the requests of all tasks of an event loop to one server.

The requests of one round of the loop are written together, and the replies are matched in order (redis.io, "Redis
pipelining"). A request that was sent fails if the server sends no reply to any request during the node timeout.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError

from ...core.flow.requests import EvalScript
from ..deadlines import LOOP_TURN
from ..error_context import caused_by
from ..resp import INCOMPLETE, Reader, encode_eval

Compensation = Callable[[], EvalScript] | None


class PendingRequest:
    """A request on a shared connection. ``future`` gets the list of its ``count`` replies.

    ``payload`` has the encoded commands. ``compensation`` is a function that returns the script that undoes the
    request. It is ``None`` if there is nothing to undo.
    """

    __slots__ = ("compensation", "count", "future", "payload", "sent_at")

    def __init__(
        self, future: asyncio.Future[list[Any]], payload: bytes, count: int, compensation: Compensation
    ) -> None:
        self.future = future
        self.payload = payload
        self.count = count
        self.compensation = compensation
        self.sent_at = 0.0  # 0: not written yet

    @property
    def awaited(self) -> bool:
        """True if a task still waits for the replies."""
        return not self.future.done()


class SharedConnection(asyncio.Protocol):
    """A connection to one server that carries the requests of all tasks of an event loop.

    Takes over the transport of ``connection``, a redis-py connection that has logged in. Requests fail when the server
    has sent no reply for ``timeout`` seconds. A ``retired`` connection gets no new requests, and closes after the last
    reply that a task waits for.
    """

    def __init__(self, connection: Any, timeout: float) -> None:
        self.retired = False
        self._connection = connection
        self._transport: asyncio.Transport = connection._writer.transport
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._timeout = timeout
        self._timer: asyncio.TimerHandle | None = None
        self._last_reply = 0.0
        self._queued: list[PendingRequest] = []  # not written yet
        self._in_flight: deque[PendingRequest] = deque()
        self._replies: list[Any] = []  # to the first request in flight
        self._reader = Reader()
        self._new_error: Callable[[], Exception] = lambda: RedisConnectionError("Connection closed by server.")
        self._transport.set_protocol(self)

    def send(self, payload: bytes, count: int, compensation: Compensation) -> PendingRequest:
        """Send ``payload``, the encoded commands of a request with ``count`` replies. Returns the pending request.

        Sends at once if the connection is idle, otherwise in the next round of the event loop. ``compensation`` returns
        the script that undoes the request. Raises the error that has closed the connection.
        """
        if self._transport.is_closing() or self._closed.done():
            raise self._new_error()
        request = PendingRequest(self._loop.create_future(), payload, count, compensation)
        self._queued.append(request)
        if len(self._queued) == 1:
            if self._in_flight:
                self._loop.call_soon(self._flush)
            else:  # for one task, waiting for the next round costs 6 % more CPU in a pair (benchmark "asyncio-pair")
                self._flush()
        return request

    def abandon(self, request: PendingRequest) -> None:
        """Cancel ``request``, whose task was cancelled, and send its compensation, if any.

        A request that has not been written is not sent, and needs no compensation.
        """
        if not self._loop.is_closed():
            request.future.cancel()  # a coroutine that was closed has not cancelled it
            self._undo(request)
            self._close_if_unused()

    def retire(self) -> None:
        """Accept no further requests, and close when no task waits for a reply."""
        self.retired = True
        self._close_if_unused()

    _close = retire  # the name that redis-py's connections use

    async def disconnect(self) -> None:
        """Call `retire`, and return when the connection is closed. Return at once if tasks still wait for replies."""
        self.retire()
        if self._transport.is_closing():
            await self._closed

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def _flush(self) -> None:
        """Write the queued requests in one buffer."""
        if self._transport.is_closing():
            return  # `connection_lost` will fail them
        requests, self._queued = [request for request in self._queued if request.awaited], []
        if not requests:
            return
        now = self._loop.time()
        for request in requests:
            request.sent_at = now
        self._in_flight += requests
        self._transport.write(b"".join([request.payload for request in requests]))
        if self._timer is None:  # one timer for all requests instead of one for each
            self._timer = self._loop.call_at(now + self._timeout, self._watch)

    def _undo(self, request: PendingRequest) -> None:
        """Write the compensation of ``request``, if the request has been written and has a compensation.

        The reply to the compensation is ignored.
        """
        if request.compensation and request.sent_at and not self._transport.is_closing():
            payload = encode_eval(request.compensation())
            undoing = PendingRequest(self._loop.create_future(), payload, 1, None)
            undoing.sent_at = self._loop.time()
            undoing.future.cancel()
            self._in_flight.append(undoing)
            self._transport.write(payload)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        """Parse ``data``, and pass each complete reply to its request. Called by the transport.

        Keeps the beginning of an incomplete reply. Data that is no reply closes the connection.
        """
        reader = self._reader
        reader.feed(data)
        arrived = False
        try:
            while (reply := reader.reply()) is not INCOMPLETE:
                arrived = True
                self._answer(reply)
        except InvalidResponse as error:
            text = str(error)
            self._fail(lambda: InvalidResponse(text))
            return
        if arrived:  # bytes of an incomplete reply are no progress
            self._last_reply = self._loop.time()
            self._close_if_unused()

    def _answer(self, reply: Any) -> None:
        """Pass ``reply`` to the oldest request in flight. The last reply to a request sets the future of the request.

        If no request is in flight, an error reply closes the connection. Any other reply raises ``InvalidResponse``.
        """
        if not self._in_flight:
            if isinstance(reply, Exception):  # such as "max number of clients reached"
                self._fail(lambda: reply)
                return
            raise InvalidResponse(f"unexpected data: {reply!r:.80}")
        request = self._in_flight[0]
        self._replies.append(reply)
        if len(self._replies) == request.count:
            self._in_flight.popleft()
            replies, self._replies = self._replies, []
            if request.awaited:
                _settle(request, replies)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail all requests, because the connection has ended. Called by the transport, with the ``error`` if any."""
        self._fail(lambda: caused_by(RedisConnectionError("Connection closed by server."), error))
        if not self._closed.done():
            self._closed.set_result(None)

    # ── deadlines and the end ────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        """Set a timer for the deadline of the oldest request in flight. If the deadline has passed, schedule `_expire`.

        If the event loop was blocked at the deadline, `_expire` is delayed by the time for which the loop was late (at
        most the timeout), so that a reply that has arrived meanwhile is read first.
        """
        self._timer = None
        oldest = next((each for each in self._in_flight if each.awaited or not self.retired), None)
        if oldest is not None:
            now, due = self._loop.time(), max(oldest.sent_at, self._last_reply) + self._timeout
            if due > now:
                self._timer = self._loop.call_at(due, self._watch)
            else:
                end = now + min(now - due, self._timeout) + LOOP_TURN
                self._timer = self._loop.call_at(end, self._expire, now - self._timeout)

    def _expire(self, sent_by: float) -> None:
        """If no reply has arrived since the time ``sent_by``, fail the requests that were sent until then, and retire.

        ``sent_by``: seconds of the event loop's clock. Later requests keep their own deadlines.
        """
        if self._last_reply <= sent_by:
            for request in [each for each in self._in_flight if each.awaited and each.sent_at <= sent_by]:
                self._fail_one(request, TimeoutError("no reply in time"))
            self.retire()
        self._watch()

    def _close_if_unused(self) -> None:
        if self.retired and not any(request.awaited for request in (*self._in_flight, *self._queued)):
            self._fail(lambda: TimeoutError("no reply in time"))

    def _fail(self, new_error: Callable[[], Exception]) -> None:
        """Fail all requests with the error that ``new_error`` returns, and close the connection."""
        if not self.retired:
            self._new_error = new_error
        self.retired = True
        for request in (*self._in_flight, *self._queued):
            if request.awaited:
                self._fail_one(request, new_error())
        self._queued.clear()
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed.done():  # a server that reads nothing would delay the end, which follows the last byte
            self._loop.call_later(self._timeout, self._transport.abort)
        self._connection._close()

    def _fail_one(self, request: PendingRequest, error: Exception) -> None:
        request.future.set_exception(error)
        self._undo(request)


def _settle(request: PendingRequest, replies: list[Any]) -> None:
    """Set ``replies`` as the result of ``request``.

    A reply that is an error other than `ResponseError`, such as LOADING, becomes the exception of the request instead.
    """
    for reply in replies:
        if isinstance(reply, Exception) and not isinstance(reply, ResponseError):
            request.future.set_exception(reply)
            return
    request.future.set_result(replies)
