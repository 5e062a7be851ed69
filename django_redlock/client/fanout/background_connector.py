"""Opens connections in background threads, so that a node that hangs delays no request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from redis.exceptions import RedisError, ResponseError

from ...core.process import fork
from ...core.process.mutex import new_mutex
from ..errors import fault_of
from ..node_protocol import Node
from ..pool import AllInUse
from ..resp import POKE

DOWN_SECONDS = 1.0  # seconds for which a node that did not reply is skipped, and the pause between two probes
PROBE_SECONDS = 60.0  # seconds after the last request, after which probing ends


class Connector:
    """Opens connections in threads, and knows which nodes are down (a circuit breaker for each node).

    Requests skip a node that is down, and one thread probes the node until it answers. When the node is back, requests
    use the node again. ``timeout`` limits the wait for replies on a new connection, in seconds. ``greeting`` is an
    encoded command that is sent on each new connection, to start a quarantine that is due. Its reply is ignored. Nodes
    are given by their index in ``nodes``.
    """

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self._nodes = nodes
        self._timeout = timeout
        self._greeting = greeting
        self.last_request = 0.0  # by the monotonic clock
        self._reset()
        fork.on_fork(self._reset)  # the child has none of the threads

    def _reset(self) -> None:
        self._mutex = new_mutex()
        self._connecting: set[int] = set()
        self._probing: set[int] = set()
        self._failed: dict[int, tuple[float, Exception]] = {}  # node -> time until which the node is skipped, error
        self._closed = threading.Event()

    def failure(self, index: int, now: float) -> Exception | None:
        """Return the error because of which the node is skipped at ``now`` (monotonic seconds).

        Returns ``None`` if the node is not skipped.
        """
        failed = self._failed.get(index)
        return failed[1] if failed and now < failed[0] else None

    def is_down(self, index: int) -> bool:
        """Return whether the last attempt to use the node failed."""
        return index in self._failed

    def is_connecting(self, index: int) -> bool:
        """Return whether a connection to the node is being opened."""
        return index in self._connecting

    def mark_down(self, index: int, error: Exception, closed: threading.Event | None = None) -> None:
        """Skip the node for `DOWN_SECONDS` because of ``error``, and start to probe the node.

        ``closed``: the event that ends the probing; ``None``: the event that the next `close` sets.
        """
        self._failed[index] = time.monotonic() + DOWN_SECONDS, error
        self._start(self._probe, index, self._probing, closed)

    def connect(self, index: int) -> None:
        """Open a connection to the node in the background. Does nothing if a connection is being opened."""
        if index not in self._connecting:
            connect = partial(self._connect_in_background, caller=threading.get_ident())
            if (error := self._start(connect, index, self._connecting, None)) is not None:
                self.mark_down(index, error)

    def close(self) -> None:
        """Stop probing, and close connections that are being opened. The next request that fails starts probing again.

        Must be called before the pools are closed.
        """
        self._closed.set()
        self._closed = threading.Event()

    def _start(
        self,
        work: Callable[[int, threading.Event], None],
        index: int,
        running: set[int],
        closed: threading.Event | None,
    ) -> Exception | None:
        with self._mutex:
            if index in running:
                return None
            try:
                work_args = (index, closed or self._closed)
                threading.Thread(target=work, args=work_args, name="redlock-connect-node", daemon=True).start()
            except RuntimeError as error:  # no more threads may be started, or the interpreter is shutting down
                return error
            running.add(index)
        return None

    def _connect_in_background(self, index: int, closed: threading.Event, caller: int = 0) -> None:
        fork.run_postponing(self._connect_now, index, closed, caller=caller)

    def _connect_now(self, index: int, closed: threading.Event) -> None:
        try:
            for first in (True, False):
                try:
                    self._connect(index, closed)
                    self._failed.pop(index, None)
                    return
                except AllInUse:
                    return
                except (RedisError, OSError) as error:
                    fault = fault_of(self._nodes[index], error, connected=first)
                if closed.is_set() or not fault.stale:
                    break
            self.mark_down(index, fault.error, closed)
        finally:
            with self._mutex:
                self._connecting.discard(index)

    def _connect(self, index: int, closed: threading.Event) -> None:
        pool = self._nodes[index].find_pool(b"")
        connection = pool.connect()
        try:
            connection.send(POKE + self._greeting)
            pong, *_ = connection.receive(1 + bool(self._greeting), time.monotonic() + self._timeout)
        except BaseException:
            pool.discard(connection)
            raise
        if closed.is_set():  # a connection that was opened after the pool was closed would become idle
            pool.discard(connection)
            return
        pool.checkin(connection)
        if isinstance(pong, ResponseError):
            raise pong

    def _probe(self, index: int, closed: threading.Event) -> None:
        while not closed.wait(DOWN_SECONDS):
            with self._mutex:
                idle = time.monotonic() - self.last_request > PROBE_SECONDS
                if idle or index not in self._failed:
                    self._probing.discard(index)
                    return
                connecting = index in self._connecting
                self._connecting.add(index)
            if not connecting:
                self._connect_in_background(index, closed)
        with self._mutex:
            self._probing.discard(index)
