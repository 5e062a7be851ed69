"""Releases that a node could not be told of, because it was left out or did not answer: it hears of them later."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from redis.exceptions import RedisError

from ...core import fork
from ...core.flow.requests import EvalScript, Fault
from ..discovery import Node
from .connector import DOWN_SECONDS
from .in_flight import InFlightConnection

KEEP_SECONDS = (
    60.0  # seconds after which a release is forgotten: the default ``max_ttl``, when the vote has ended anyway
)
MAX_RELEASES = 1000  # releases that are remembered for one node; the oldest are forgotten


class MissedReleases:
    """What each node has missed, and a thread for each that has missed something, until it has been told.

    A vote that no release reaches stands for the rest of its ttl. A release that comes late, or twice, frees only what
    its own token holds.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._mutex = threading.RLock()  # reentrant: a signal's handler may use a lock too
        self._missed: dict[int, deque[tuple[float, EvalScript]]] = {}  # by node, while there is a thread for it
        self._unasked: dict[tuple[bytes, int], None] = {}  # claims and nodes that were never asked for a vote

    def not_sent(self, acquisition_id: bytes, runs: Sequence[EvalScript], node: int) -> None:
        """A request could not be sent. What asked for no vote has none to be freed."""
        with self._mutex:
            if not _frees(runs):
                self._unasked[acquisition_id, node] = None
                if len(self._unasked) > MAX_RELEASES:
                    del self._unasked[next(iter(self._unasked))]
                return
            if (acquisition_id, node) in self._unasked:
                del self._unasked[acquisition_id, node]
                return
        self.add(runs, node)

    def sent(self, acquisition_id: bytes, node: int) -> None:
        """A request was sent: from now on there may be a vote."""
        if self._unasked:
            with self._mutex:
                self._unasked.pop((acquisition_id, node), None)

    def add(self, runs: Sequence[EvalScript], node: int) -> None:
        """No answer came. What frees a vote is said again when the node can be reached."""
        if not _frees(runs):
            return
        with self._mutex:
            until, fresh = time.monotonic() + KEEP_SECONDS, deque[tuple[float, EvalScript]](maxlen=MAX_RELEASES)
            missed = self._missed.setdefault(node, fresh)
            missed.extend([(until, run) for run in runs])
        if missed is fresh:
            thread = threading.Thread(target=self._deliver, args=(node,), name="redlock-arrears", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is shutting down: the vote ends with its lease
                self._missed.pop(node, None)

    def _deliver(self, node: int) -> None:
        while True:
            time.sleep(DOWN_SECONDS)
            with self._mutex:
                missed, self._missed[node] = self._missed[node], deque(maxlen=MAX_RELEASES)
            due = [(until, run) for until, run in missed if until > time.monotonic()]
            with fork.postponed:
                told = not due or self._delivered(node, [run for _, run in due])
            with self._mutex:
                if not told:
                    self._missed[node].extendleft(reversed(due))
                if not self._missed[node]:
                    del self._missed[node]
                    return

    def _delivered(self, node: int, runs: Sequence[EvalScript]) -> bool:
        try:
            route = self._nodes[node].find_pool(b"").fanout_pool
            line = InFlightConnection(self._nodes[node], route, route.connect())
            try:
                line.send(runs, time.monotonic())
                answers = line.receive(time.monotonic() + route.timeout)
            except BaseException:
                line.discard()
                raise
            line.checkin()
        except (RedisError, OSError):
            return False
        return not any(isinstance(answer, Fault) for answer in answers)


def _frees(runs: Sequence[EvalScript]) -> bool:
    return runs[0].script.name.endswith("_release")
