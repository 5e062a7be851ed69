"""The listener of the `EventQueue` that writes counts of lock events into the history of each store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..core.event_queue import EventRecord
from ..core.events import logger
from .minute_stats import MinuteCounter, Minutes, count_by_minute
from .store import add


class Recorder:
    """Counts events by minute and adds the counts to the store of each backend.

    ``dropped``: the number of counts, one for each name and minute, that a store failed to take.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._named: Minutes[set[str]] = {}

    def observe(self, records: Sequence[EventRecord]) -> Callable[[], None] | None:
        """Count ``records``. Returns the function that writes the counts; ``None`` if there is nothing to write.

        See `EventQueue.subscribe`.
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
