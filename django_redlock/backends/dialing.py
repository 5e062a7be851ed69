"""Connecting to several nodes at once, and to those that hang without anybody waiting for it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from ..core import fork
from .exchange import fault
from .nodes import Node
from .patience import reply

LEFT_OUT = 1.0  # seconds for which a node that could not be reached is not tried again
PATIENCE = 0.1  # of the node timeout: what a majority that is connected waits for the others


class Dialer:
    """Opens connections in threads of their own, each of which ends within the node's timeout or so.

    That is the only use of threads here: it happens when a process starts and when a node comes back.
    """

    def __init__(self, nodes: Sequence[Node], timeout: float) -> None:
        self._nodes = nodes
        self._timeout = timeout
        self._begin()
        fork.on_fork(self._begin)  # the threads and who waits for them are the parent's

    def _begin(self) -> None:
        self._mutex = threading.RLock()  # entered as it is: see `core.renewal`
        self._waiting: set[queue.SimpleQueue[None]] = set()  # no Condition: in there an interrupt becomes another error
        self._dialing: set[int] = set()
        self._failed: dict[int, tuple[float, Exception]] = {}  # node -> when to try again, and what was wrong

    def failure(self, index: int, now: float) -> Exception | None:
        """Why the node is left out for now, if it is."""
        failed = self._failed.get(index)
        return failed[1] if failed and now < failed[0] else None

    def leave_out(self, index: int, error: Exception) -> None:
        """The node did not answer: let it be for a while."""
        self._failed[index] = time.monotonic() + LEFT_OUT, error

    def dial(self, indexes: Collection[int], enough: int, patience: float = PATIENCE) -> None:
        """Connect to these nodes, and wait until all are, or until ``enough`` are and the others take long.

        Long is ``patience`` of the node timeout, and nothing for a node that could not be reached the last time.
        """
        start, told = time.monotonic(), queue.SimpleQueue[None]()
        with self._mutex:
            for index in indexes:
                if index in self._dialing:
                    continue
                try:
                    threading.Thread(
                        target=fork.run, args=(self._dial, index), name="redlock-dial", daemon=True
                    ).start()
                    self._dialing.add(index)
                except RuntimeError as error:  # there may be no more threads
                    self.leave_out(index, error)
        try:
            self._waiting.add(told)
            while open_ := self._dialing.intersection(indexes):
                waited = time.monotonic() - start
                met = len(indexes) - len(open_) >= enough
                limit = self._timeout * (patience if met else 1)
                if waited >= limit or (met and self._failed.keys() >= open_):
                    return
                with suppress(queue.Empty):
                    told.get(timeout=limit - waited)
        finally:
            self._waiting.discard(told)

    def _dial(self, index: int) -> None:
        try:
            route = self._nodes[index].find(b"")
            connection = route.connect()
            try:
                connection.send_command("PING", check_health=False)
                reply(connection, time.monotonic() + self._timeout)
            except BaseException:
                route.drop(connection)
                raise
            route.give(connection)
            self._failed.pop(index, None)
        except (RedisError, OSError) as error:
            self.leave_out(index, fault(self._nodes[index], error).error)
        finally:
            with self._mutex:
                self._dialing.discard(index)
            for told in list(self._waiting):
                told.put(None)
