"""Background work for one node of a quorum: connects, probes while the node is down, and repeats failed releases."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from redis.exceptions import ResponseError

from ...core.flow.drivers import drive
from ...core.flow.requests import EvalScript, Fault
from ...core.process import fork, threads
from ...core.process.mutex import new_mutex
from ..connect import AwaitFuture
from ..connection import AllInUse
from ..nodes.node import Node
from ..resp import POKE
from .in_flight import InFlightConnection

DOWN_SECONDS = 1.0  # seconds for which a node that did not reply is skipped, and the pause between two probes
KEEP_SECONDS = 300.0  # seconds for which a release is repeated: at least the default `max_ttl` of every backend
MAX_RELEASES = 1000  # releases that are kept for one node; the oldest are dropped


class NodeKeeper:
    """Connects to ``node`` in a separate thread, so that a hanging node delays no request. Acts as a circuit breaker.

    Requests skip a node that is down. The thread probes the node until it replies, and then repeats failed releases,
    because a vote that is not released blocks other claims for the rest of the ttl. A late or repeated release is safe,
    because it affects only its own token.

    ``timeout``: the longest wait for replies on a new connection, in seconds. ``greeting``: an encoded command that is
    sent on each new connection to start a quarantine that is due; its reply is ignored. ``is_used``: returns whether
    requests use the node. If not, probing ends, and a new connection is closed after its releases.
    """

    def __init__(self, node: Node, timeout: float, greeting: bytes, is_used: Callable[[], bool]) -> None:
        self._node = node
        self._timeout = timeout
        self._greeting = greeting
        self._is_used = is_used
        self._mutex = new_mutex()
        self._thread: threading.Thread | None = None
        self._asked: SimpleQueue[None] = SimpleQueue()  # an entry for each request for a connection
        self._connecting = False
        self._failed: tuple[float, Exception] | None = None  # the end of the time in which the node is skipped, error
        self._releases: deque[tuple[float, EvalScript]] = deque(maxlen=MAX_RELEASES)  # with the end of their repetition

    def failure(self, now: float) -> Exception | None:
        """Return the error because of which the node is skipped at ``now`` (monotonic seconds), or ``None``."""
        failed = self._failed
        return failed[1] if failed and now < failed[0] else None

    @property
    def is_down(self) -> bool:
        """Whether the last attempt to use the node failed."""
        return self._failed is not None

    @property
    def is_connecting(self) -> bool:
        """Whether a connection to the node is being opened."""
        return self._connecting or not self._asked.empty()

    def mark_down(self, error: Exception) -> None:
        """Skip the node for `DOWN_SECONDS` because of ``error``, and probe it after that time."""
        self._failed = time.monotonic() + DOWN_SECONDS, error
        self._ensure_thread()

    def connect(self) -> None:
        """Open a connection to the node in the background, unless one is being opened."""
        if not self.is_connecting:
            self._asked.put(None)
        if not self._ensure_thread():
            self._failed = time.monotonic() + DOWN_SECONDS, RuntimeError("no thread can be started")

    def repeat(self, releases: Sequence[EvalScript]) -> None:
        """Repeat ``releases`` in the background until the node replies."""
        until = time.monotonic() + KEEP_SECONDS
        with self._mutex:
            self._releases.extend((until, call) for call in releases)
        self._ensure_thread()

    # ── the thread ───────────────────────────────────────────────────────────────────────────

    def _ensure_thread(self) -> bool:
        """Start the thread unless it runs. Returns whether it runs."""
        if (thread := self._thread) is None:
            with self._mutex:
                thread = self._thread or threads.start(threads.Kind.NODE, self._run)
                self._thread = thread
        return thread is not None

    def _run(self) -> None:
        """Open requested connections at once, do all other work every `DOWN_SECONDS`, and end when no work is left."""
        while True:
            try:
                self._asked.get(timeout=DOWN_SECONDS)
                asked = self._connecting = True
            except Empty:
                asked = False
            with self._mutex:
                due = [each for each in self._releases if each[0] > time.monotonic()]
                self._releases.clear()
                if not (asked or due or (self.is_down and self._is_used()) or not self._asked.empty()):
                    self._thread = None
                    return
                self._connecting = True
            try:
                fork.run_postponing(self._attempt, due)
            finally:
                self._connecting = False
            with self._mutex:
                self._releases = deque([*due, *self._releases], maxlen=MAX_RELEASES)

    def _attempt(self, due: list[tuple[float, EvalScript]]) -> None:
        """Open a connection, and send the releases in ``due``. Clears ``due`` if the node has replied to them."""
        for first in (True, False):
            try:
                self._connect(due)
                self._failed = None
                return
            except AllInUse:
                return
            except Exception as error:  # noqa: BLE001  (any error, also of a credential provider)
                fault = self._node.record_fault(error, connected=first)
            if not (fault.stale and self._is_used()):
                break
        self._failed = time.monotonic() + DOWN_SECONDS, fault.error

    def _connect(self, due: list[tuple[float, EvalScript]]) -> None:
        pool = self._node.known_pool(b"") or drive(self._node.find_pool(b""), AwaitFuture.perform)
        connection = pool.checkout_new()
        try:
            connection.send(POKE + self._greeting)
            pong, *_ = connection.receive(1 + bool(self._greeting), time.monotonic() + self._timeout)
            if due:
                releasing = InFlightConnection(self._node, pool, connection)
                releasing.send([call for _, call in due], time.monotonic())
                replies = releasing.receive(time.monotonic() + self._timeout)
                due[:] = [each for each, reply in zip(due, replies, strict=True) if isinstance(reply, Fault)]
        except BaseException:
            pool.discard(connection)
            raise
        if self._is_used():
            pool.checkin(connection)
        else:  # a connection that was opened after the pool was closed would become idle
            pool.discard(connection)
        if isinstance(pong, ResponseError):
            raise pong
