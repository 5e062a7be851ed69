"""Releases that failed on a node. They are retried until the node answers or the lease has expired."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from redis.exceptions import RedisError

from ...core import fork
from ...core.flow.requests import EvalScript, Fault
from ..discovery import Node
from .background_connector import DOWN_SECONDS
from .in_flight import InFlightConnection

KEEP_SECONDS = 60.0  # seconds for which a release is retried: the default ``max_ttl``, after which the vote has expired
MAX_RELEASES = 1000  # releases that are kept for one node; the oldest are dropped


class MissedReleases:
    """The releases that each node has missed, and one thread for each such node, which delivers them.

    A vote that no release reaches stands for the rest of its ttl. A late or repeated release frees only what its own
    token holds.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._mutex = threading.RLock()  # reentrant: a signal handler may use a lock too
        self._missed: dict[int, deque[tuple[float, EvalScript]]] = {}  # by node, while its thread runs
        self._never_sent: dict[tuple[bytes, int], None] = {}  # acquisitions and nodes without a vote

    def not_sent(self, acquisition_id: bytes, calls: Sequence[EvalScript], node: int) -> None:
        """A request was not sent to the node. If it was an acquire, its release is not needed there either."""
        with self._mutex:
            if not _is_release(calls):
                self._never_sent[acquisition_id, node] = None
                if len(self._never_sent) > MAX_RELEASES:
                    del self._never_sent[next(iter(self._never_sent))]
                return
            if (acquisition_id, node) in self._never_sent:
                del self._never_sent[acquisition_id, node]
                return
        self.add(calls, node)

    def sent(self, acquisition_id: bytes, node: int) -> None:
        """A request was sent to the node, which may have given its vote."""
        if self._never_sent:
            with self._mutex:
                self._never_sent.pop((acquisition_id, node), None)

    def add(self, calls: Sequence[EvalScript], node: int) -> None:
        """The node did not answer. Releases among ``calls`` are delivered when the node can be reached."""
        if not _is_release(calls):
            return
        with self._mutex:
            until, fresh = time.monotonic() + KEEP_SECONDS, deque[tuple[float, EvalScript]](maxlen=MAX_RELEASES)
            missed = self._missed.setdefault(node, fresh)
            missed.extend([(until, call) for call in calls])
        if missed is fresh:
            thread = threading.Thread(target=self._deliver, args=(node,), name="redlock-missed-releases", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is shutting down: the vote expires
                self._missed.pop(node, None)

    def _deliver(self, node: int) -> None:
        while True:
            time.sleep(DOWN_SECONDS)
            with self._mutex:
                missed, self._missed[node] = self._missed[node], deque(maxlen=MAX_RELEASES)
            due = [(until, call) for until, call in missed if until > time.monotonic()]
            with fork.postponed:
                delivered = not due or self._delivered(node, [call for _, call in due])
            with self._mutex:
                if not delivered:
                    self._missed[node].extendleft(reversed(due))
                if not self._missed[node]:
                    del self._missed[node]
                    return

    def _delivered(self, node: int, calls: Sequence[EvalScript]) -> bool:
        try:
            pool = self._nodes[node].find_pool(b"").fanout_pool
            connection = InFlightConnection(self._nodes[node], pool, pool.connect())
            try:
                connection.send(calls, time.monotonic())
                replies = connection.receive(time.monotonic() + pool.timeout)
            except BaseException:
                connection.discard()
                raise
            connection.checkin()
        except (RedisError, OSError):
            return False
        return not any(isinstance(reply, Fault) for reply in replies)


def _is_release(calls: Sequence[EvalScript]) -> bool:
    return calls[0].script.name.endswith("_release")
