"""Retries releases that failed on a node, until the node answers or `KEEP_SECONDS` have passed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from ...core.flow.requests import EvalScript, Fault
from ...core.process import fork
from ...core.process.mutex import new_mutex
from ..node_protocol import Node
from .background_connector import DOWN_SECONDS
from .in_flight import InFlightConnection

KEEP_SECONDS = 300.0  # seconds for which a release is retried: at least the default `max_ttl` of every backend
MAX_RELEASES = 1000  # releases that are kept for one node; the oldest release is dropped


class MissedReleases:
    """Releases that failed on a node. A thread for each node with failed releases retries them.

    A vote that is not released blocks other claims for the rest of the ttl. A late or repeated release is safe, because
    a release affects only the token that it names.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._mutex = new_mutex()
        self._missed: dict[int, deque[tuple[float, EvalScript]]] = {}  # by node
        self._delivering: set[int] = set()  # nodes whose threads run; added by the threads, which no signal interrupts
        self._never_sent: dict[tuple[bytes, int], None] = {}  # acquisitions and nodes to which no acquire was sent

    def not_sent(self, acquisition_id: bytes, calls: Sequence[EvalScript], node: int) -> None:
        """Handle ``calls`` that could not be sent to the node with index ``node``.

        An acquire is recorded as never sent. A release is retried in the background, unless the acquire of the same
        acquisition was never sent to the node either.
        """
        with self._mutex:
            if calls[0].compensation is not None:  # an acquire
                self._never_sent[acquisition_id, node] = None
                if len(self._never_sent) > MAX_RELEASES:
                    del self._never_sent[next(iter(self._never_sent))]
                return
            if _releases(calls) and (acquisition_id, node) in self._never_sent:
                del self._never_sent[acquisition_id, node]
                return
        self.add(calls, node)

    def sent(self, acquisition_id: bytes, node: int) -> None:
        """Record that a request of the acquisition was sent to the node.

        The node may have granted a vote. Therefore a later release that can't be sent is retried.
        """
        if self._never_sent:
            with self._mutex:
                self._never_sent.pop((acquisition_id, node), None)

    def add(self, calls: Sequence[EvalScript], node: int) -> None:
        """Retry in the background the releases among ``calls``. The node with index ``node`` has not answered them."""
        if not (releases := _releases(calls)):
            return
        with self._mutex:
            until, missed = time.monotonic() + KEEP_SECONDS, self._missed.setdefault(node, deque(maxlen=MAX_RELEASES))
            missed.extend([(until, call) for call in releases])
        if node not in self._delivering:
            thread = threading.Thread(target=self._deliver, args=(node,), name="redlock-missed-releases", daemon=True)
            with suppress(RuntimeError):  # the interpreter is shutting down: the vote expires
                thread.start()

    def _deliver(self, node: int) -> None:
        with self._mutex:
            if node in self._delivering:
                return
            self._delivering.add(node)
        while True:
            time.sleep(DOWN_SECONDS)
            with self._mutex:
                missed, self._missed[node] = self._missed.get(node, ()), deque(maxlen=MAX_RELEASES)
            due = [(until, call) for until, call in missed if until > time.monotonic()]
            with fork.postponed:
                delivered = not due or self._delivered(node, [call for _, call in due])
            with self._mutex:
                if not delivered:
                    self._missed[node] = deque([*due, *self._missed[node]], maxlen=MAX_RELEASES)
                if not self._missed[node]:
                    del self._missed[node]
                    self._delivering.discard(node)
                    return

    def _delivered(self, node: int, calls: Sequence[EvalScript]) -> bool:
        try:
            pool = self._nodes[node].find_pool(b"")
            connection = InFlightConnection(self._nodes[node], pool, pool.connect())
            try:
                connection.send(calls, time.monotonic())
                replies = connection.receive(time.monotonic() + pool.timeout)
            finally:
                connection.discard()  # in the pool, it would stay open if the backend was closed meanwhile
        except Exception:  # noqa: BLE001  (any error, also of a credential provider: the releases are retried)
            return False
        return not any(isinstance(reply, Fault) for reply in replies)


def _releases(calls: Sequence[EvalScript]) -> list[EvalScript]:
    return [call for call in calls if call.script.name.endswith("_release")]
