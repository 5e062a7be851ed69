"""Connecting to several nodes at once, and to those that hang, without anybody waiting for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from redis.exceptions import RedisError, ResponseError

from ...core import fork
from ..deadlines import read_replies
from ..discovery import Node
from ..pool import AllInUse
from ..request import POKE, fault_of

DOWN_SECONDS = 1.0  # seconds for which a node that could not be reached is not asked; then it is probed
PROBE_SECONDS = 60.0  # seconds for which that goes on after the last request


class Connector:
    """Opens connections in threads of their own, each of which ends within the node's timeout or so.

    That happens when a process starts and when a node comes back. A node that is left out is probed by one thread until
    it answers, so that it is asked again, and its quarantine begins, as soon as it is there. ``greeting`` is sent on
    each new connection, and its answer is ignored.
    """

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self._nodes = nodes
        self._timeout = timeout
        self._greeting = greeting
        self.wanted = 0.0  # when a request was made last
        self._reset()
        fork.on_fork(self._reset)  # the threads and who waits for them are the parent's

    def _reset(self) -> None:
        self._mutex = threading.RLock()  # entered as it is: see `core.renewal`
        self._connecting: set[int] = set()
        self._probing: set[int] = set()
        self._failed: dict[int, tuple[float, Exception]] = {}  # node -> when to try again, and what was wrong
        self._closed = threading.Event()

    def failure(self, index: int, now: float) -> Exception | None:
        """Why the node is left out for now, if it is."""
        failed = self._failed.get(index)
        return failed[1] if failed and now < failed[0] else None

    def is_down(self, index: int) -> bool:
        """Whether the node could not be reached the last time."""
        return index in self._failed

    def is_connecting(self, index: int) -> bool:
        """Whether a connection to the node is being opened."""
        return index in self._connecting

    def mark_down(self, index: int, error: Exception) -> None:
        """The node did not answer: let it be for a while, then probe it."""
        self._failed[index] = time.monotonic() + DOWN_SECONDS, error
        self._start(self._probe, index, self._probing)

    def connect(self, index: int) -> None:
        """Open a connection to the node, in the background."""
        if (
            index not in self._connecting
            and (error := self._start(self._connect_in_background, index, self._connecting)) is not None
        ):
            self.mark_down(index, error)

    def close(self) -> None:
        """Probe no more, until there is another request."""
        self._closed.set()
        self._closed = threading.Event()

    def _start(self, work: Callable[[int], None], index: int, at_work: set[int]) -> Exception | None:
        with self._mutex:
            if index in at_work:
                return None
            try:
                threading.Thread(target=work, args=(index,), name="redlock-dial", daemon=True).start()
            except RuntimeError as error:  # there may be no more threads, or the interpreter is shutting down
                return error
            at_work.add(index)
        return None

    def _connect_in_background(self, index: int) -> None:
        with fork.postponed:
            self._connect_now(index)

    def _connect_now(self, index: int) -> None:
        try:
            for broken in (False, True):
                try:
                    self._connect(index)
                    self._failed.pop(index, None)
                    return
                except AllInUse:
                    return
                except (RedisError, OSError) as error:
                    failure = fault_of(self._nodes[index], error, connected=not broken)
                if not failure.stale:
                    break
            self.mark_down(index, failure.error)
        finally:
            with self._mutex:
                self._connecting.discard(index)

    def _connect(self, index: int) -> None:
        route = self._nodes[index].find_pool(b"").fanout_pool
        connection = route.connect()
        try:
            connection.send_packed_command((POKE + self._greeting,), check_health=False)
            pong, *_ = read_replies(connection, 1 + bool(self._greeting), time.monotonic() + self._timeout)
        except BaseException:
            route.discard(connection)
            raise
        route.checkin(connection)
        if isinstance(pong, ResponseError):
            raise pong

    def _probe(self, index: int) -> None:
        closed = self._closed
        while not closed.wait(DOWN_SECONDS):
            with self._mutex:
                idle = time.monotonic() - self.wanted > PROBE_SECONDS
                if idle or index not in self._failed:
                    self._probing.discard(index)
                    return
                busy = index in self._connecting
                self._connecting.add(index)
            if not busy:
                self._connect_in_background(index)
        with self._mutex:
            self._probing.discard(index)
