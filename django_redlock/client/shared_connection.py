"""The connection that the asyncio tasks of an event loop share, for all requests that do not block on the server.

Requests of one iteration of the loop are written together, and replies are matched in order (redis.io, "Redis
pipelining"). Each request has its own deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from redis.exceptions import InvalidResponse, RedisError

from ..core.flow.requests import EvalScript
from .connection import Connection, ConnectionSilent
from .resp import encode_eval

Compensation = Callable[[], EvalScript] | None
Discard = Callable[[Connection], object]


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request on a shared connection. The result of ``future`` is the list of its ``count`` replies.

    ``payload``: the encoded commands. ``compensation``: returns the script that undoes the request; ``None`` if there
    is nothing to undo. ``due``: the deadline of the replies by the loop's clock; 0 if the request was not written yet.
    """

    future: asyncio.Future[list[Any]]
    payload: bytes
    count: int
    compensation: Compensation
    due: float = 0.0

    @property
    def awaited(self) -> bool:
        return not self.future.done()


class SharedConnection:
    """A connection to one server that carries the requests of the tasks of an event loop.

    ``discard``: called with ``connection`` at the end. ``timeout``: the deadline of each reply in seconds. A
    ``retired`` connection accepts no new requests, and closes after the last awaited reply.
    """

    def __init__(self, connection: Connection, timeout: float, discard: Discard) -> None:
        self.retired = False
        self.connection = connection
        self._discard = discard
        self._loop = asyncio.get_running_loop()
        self._fileno = connection.fileno()
        self._timeout = timeout
        self._watching = False  # whether a timer will call `_watch`; a reference to the timer would be a cycle
        self._last_reply = 0.0 if connection.was_idle else math.inf  # by the loop's clock; infinite: never replied
        self._queued: list[PendingRequest] = []  # not written yet
        self._in_flight: deque[PendingRequest] = deque()
        self._unsent = b""  # bytes of requests in flight that the socket did not take
        self._error: Exception | None = None  # the reason why the connection is closed
        self._loop.add_reader(self._fileno, self._receive)

    def send(self, payload: bytes, count: int, compensation: Compensation = None) -> PendingRequest:
        """Send ``payload``, the encoded commands of a request with ``count`` replies. Returns the pending request.

        Sends at once if the connection is idle, otherwise in the next iteration of the event loop. ``compensation``:
        returns the script that undoes the request. Raises the error that has closed the connection.
        """
        if self._error is not None:
            raise _copied(self._error)
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
        if not self._loop.is_closed() and not self.connection.is_inherited:
            request.future.cancel()  # a coroutine that was closed has not cancelled it
            self._undo(request)
            self._close_if_unused()

    def retire(self) -> None:
        """Accept no further requests, and close when no task waits for a reply."""
        self.retired = True
        self._close_if_unused()

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def _flush(self) -> None:
        requests, self._queued = [request for request in self._queued if request.awaited], []
        if not requests or self._error is not None:
            return
        due = self._loop.time() + self._timeout
        for request in requests:
            request.due = due
        self._in_flight += requests
        if not self._watching:  # one timer for all requests instead of one for each
            self._watching = True
            self._loop.call_at(due, self._watch)
        self._write(b"".join([request.payload for request in requests]))

    def _write(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self.connection.write(data)
        except RedisError as error:
            self._loop.call_soon(self._close, error)  # the caller of `send` must get its request first
            return
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._fileno, self._write_rest)

    def _write_rest(self) -> None:
        data, self._unsent = self._unsent, b""
        self._loop.remove_writer(self._fileno)
        self._write(data)

    def _undo(self, request: PendingRequest) -> None:
        """Write the compensation of ``request``, if the request was written and has one. The reply is ignored."""
        if request.compensation and request.due and self._error is None:
            undoing = PendingRequest(self._loop.create_future(), b"", 1, None)
            undoing.future.cancel()
            self._in_flight.append(undoing)
            self._write(encode_eval(request.compensation()))

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def _receive(self) -> None:
        """Read the data that has arrived, and pass the replies to their requests.

        Invalid data, and a reply without a request, close the connection.
        """
        try:
            if not self.connection.fill():
                return
            in_flight, connection = self._in_flight, self.connection
            while in_flight and connection.read_available(in_flight[0].count):
                request = in_flight.popleft()
                replies = connection.receive(request.count, 0.0)
                self._last_reply = self._loop.time()
                if request.awaited:
                    request.future.set_result(replies)
            if not in_flight and connection.read_available(1):
                (reply,) = connection.receive(1, 0.0)
                raise reply if isinstance(reply, Exception) else InvalidResponse(f"unexpected data: {reply!r:.80}")
        except RedisError as error:
            self._close(error)
        else:
            self._close_if_unused()

    # ── deadlines and the end ────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        """Fail overdue requests, and retire the connection after one. Set a timer for the next deadline.

        Reads first, because replies may have arrived while the application blocked the event loop.
        """
        self._watching = False
        if self._error is not None:
            return
        self._receive()
        now = self._loop.time()
        overdue = [each for each in self._in_flight if each.awaited and each.due <= now]
        for request in overdue:
            silent = self._last_reply < request.due - self._timeout
            self._fail_one(request, (ConnectionSilent if silent else TimeoutError)("no reply in time"))
        if overdue:
            self.retire()
        if self._error is None and (following := [each.due for each in self._in_flight if each.awaited]):
            self._watching = True
            self._loop.call_at(following[0], self._watch)

    def _close_if_unused(self) -> None:
        if self.retired and not any(request.awaited for request in (*self._in_flight, *self._queued)):
            self._close(TimeoutError("no reply in time"))

    def _close(self, error: Exception) -> None:
        if self._error is not None:
            return
        if not self._loop.is_closed():
            for request in (*self._in_flight, *self._queued):
                if request.awaited:
                    self._fail_one(request, _copied(error))
            self._loop.remove_reader(self._fileno)
            self._loop.remove_writer(self._fileno)
        self._error, self.retired = error, True
        self._queued.clear()
        self._discard(self.connection)

    def _fail_one(self, request: PendingRequest, error: Exception) -> None:
        request.future.set_exception(error)
        request.future.exception()  # marked as retrieved: of several requests of a task only the first is awaited
        if not isinstance(error, ConnectionSilent):  # the request is repeated: this server must not undo it then
            self._undo(request)


def _copied(error: Exception) -> Exception:
    """Return a copy of ``error`` without its traceback, which would keep the callers' lock handles alive."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy


# ── by event loop ────────────────────────────────────────────────────────────────────────────


class SharedConnections:
    """The shared connections to one server, one for each event loop. Each is closed when its loop is closed.

    ``connect``: opens a connection for the running loop.
    """

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, SharedConnection]]) -> None:
        self._connect = connect
        # By event loop. The loop keeps its connection, as a reader; a reference from here would keep both alive.
        self._by_loop: WeakKeyDictionary[Any, weakref.ref[SharedConnection]] = WeakKeyDictionary()
        self._opening: WeakValueDictionary[Any, asyncio.Task[SharedConnection]] = WeakValueDictionary()

    def current(self) -> SharedConnection | None:
        """Return the connection of the running loop; ``None`` if there is none that accepts requests."""
        known = self._by_loop.get(asyncio.get_running_loop())
        connection = None if known is None else known()
        return None if connection is None or connection.retired else connection

    async def open(self) -> SharedConnection:
        """Open a connection for the running loop. Tasks that call this at the same time get the same connection."""
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is None or opening.done():
            opening = self._opening[loop] = loop.create_task(self._opened(loop))
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # mark as retrieved
        return await asyncio.shield(opening)  # a cancelled task must not cancel the others' connection

    async def _opened(self, loop: asyncio.AbstractEventLoop) -> SharedConnection:
        connection = await self._connect()
        self._by_loop[loop] = weakref.ref(connection)
        return connection

    def retire(self) -> None:
        """Close the connections of all loops. Each loop closes its connection in its next iteration."""
        for loop in filter(None, [ref() for ref in self._by_loop.keyrefs()]):
            if (known := self._by_loop.get(loop)) and (connection := known()):
                with contextlib.suppress(RuntimeError):  # the loop is closed, and so is its connection
                    loop.call_soon_threadsafe(connection.retire)
