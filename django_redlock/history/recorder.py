"""The listener of the `EventQueue` that writes counts of lock events into the history of each store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..core.events import logger
from .event_queue import EventRecord
from .minute_stats import MinuteCounter, Minutes, count_by_minute
from .store import add


class Recorder:
    """Counts lock events by minute and writes the counts into the store of each backend.

    ``dropped``: the number of texts (one for each lock name and minute) that were not written because a store failed.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._named: Minutes[set[str]] = {}

    def observe(self, records: Sequence[EventRecord]) -> Callable[[], None] | None:
        """Count ``records``. Returns a function that writes the counts; ``None`` if there is nothing to write.

        This method is the listener for `EventQueue.subscribe`. The queue calls the returned function in the background.
        """
        found = count_by_minute(records, self._named)
        self._named = {key: self._named[key] for key in found}  # keep minutes that may not be over
        return partial(self._write, found) if found else None

    def _write(self, found: Minutes[dict[str, MinuteCounter]]) -> None:
        for (backend, minute), counters in found.items():
            texts = {name: counter.text() for name, counter in counters.items()}
            try:
                add(backend, minute, texts)
            except Exception as error:  # noqa: BLE001  (the failure of a store must not affect other stores)
                self.dropped += len(texts)
                logger.debug("the history of %r was not written: %s", backend.alias, error)


recorder = Recorder()
