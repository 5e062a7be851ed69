"""Writes what happened to locks into the history of their stores: a listener of the `EventQueue`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..core.event_queue import EventRecord
from ..core.events import logger
from .counters import MinuteCounter, Minutes, count_by_minute
from .store import add


class Recorder:
    """Counts events by minute and adds the counts to the store of each backend.

    ``dropped``: number of names whose counts a store could not take.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._named: Minutes[set[str]] = {}

    def observe(self, records: Sequence[EventRecord]) -> Callable[[], None] | None:
        """Count ``records``, and return the function that writes the counts: see `EventQueue.subscribe`."""
        found = count_by_minute(records, self._named)
        self._named = {key: self._named[key] for key in found}  # of minutes that may not be over yet
        return partial(self._write, found) if found else None

    def _write(self, found: Minutes[dict[str, MinuteCounter]]) -> None:
        for (backend, minute), counters in found.items():
            texts = {name: counter.text() for name, counter in counters.items()}
            try:
                add(backend, minute, texts)
            except Exception as error:  # noqa: BLE001  (a store that fails must not keep the others from their counts)
                self.dropped += len(texts)
                logger.debug("the history of %r was not written: %s", backend.alias, error)


recorder = Recorder()
