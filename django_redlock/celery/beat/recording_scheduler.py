"""Extends any scheduler class of ``celery beat`` so that each run is recorded before its message is sent."""

from __future__ import annotations

from copy import copy
from typing import Any

from kombu.exceptions import OperationalError

from ...core.events import logger
from ...errors import LockNotAcquired
from .in_doubt import was_sent
from .runs import Run, Runs

RUN_HEADER = "redlock_beat_run"  # message header with the number of the run
RESEND_SECONDS = 1.0  # pause before a message is sent again after an error of the broker


def recording_scheduler(base: type[Any], runs: Runs, published: dict[str, str]) -> type[Any]:
    """Return a subclass of the scheduler ``base`` that reads each entry's last run from ``runs``, and records runs.

    ``published``: a dict from the name of an entry to a task id: that of the last run that this process has sent, or
    that can't be sent, for example because its arguments can't be serialized. The scheduler updates the dict. The
    caller passes the same dict for each term of leadership.
    """

    class RecordingScheduler(base):  # type: ignore[misc]
        """The scheduler ``base`` with recorded runs. After a ``LeadEnded`` or ``LockError``, it must not tick again."""

        _reserved: Any = None
        _run: Run | None = None  # the run whose messages are being sent
        _messages = 0  # number of messages of this run so far
        _failed = False  # whether the broker has refused one of them
        _resends = False  # whether some of them may have been sent before

        def tick(self, *args: Any, **kwargs: Any) -> Any:
            for name, run in runs.unsent():
                if (entry := self.schedule.get(name)) is not None:
                    self._resend(entry, run)
            interval = super().tick(*args, **kwargs)
            return min(interval or 0.0, RESEND_SECONDS) if any(runs.unsent()) else interval

        def populate_heap(self, *args: Any, **kwargs: Any) -> None:
            for entry in self.schedule.values():
                runs.restore(entry)
            runs.forget_removed(self.schedule)
            super().populate_heap(*args, **kwargs)

        def is_due(self, entry: Any) -> Any:
            runs.restore(entry)  # a scheduler may have read the entry anew, with an older time
            return super().is_due(entry)

        def reserve(self, entry: Any) -> Any:
            self._reserved = super().reserve(entry)
            return self._reserved

        def apply_entry(self, entry: Any, producer: Any = None) -> None:
            self._send(entry, runs.begin(entry.name, self._reserved.last_run_at), producer)

        def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
            if self._run is None:
                return super().apply_async(entry, producer=producer, advance=advance, **kwargs)
            task_id, sent = self._run.message_id(self._messages), copy(entry)
            self._messages += 1
            sent.options = {**entry.options, "task_id": task_id}
            if self._resends:
                if was_sent(self.app, task_id):
                    return self.app.AsyncResult(task_id)
                logger.warning("beat: sending %r now, task id %s: it was recorded, but not sent", entry.name, task_id)
            try:
                return super().apply_async(sent, producer=producer, advance=advance, **kwargs)
            except Exception as error:
                # Only a failure of the broker is worth another attempt. Arguments that can't be serialized are not, and
                # neither is a duplicate. (`LockNotAcquired` is an `OSError`, as errors of the broker are.)
                cause = error.__context__
                self._failed |= isinstance(cause, self._broker_errors()) and not isinstance(cause, LockNotAcquired)
                raise

        def _broker_errors(self) -> tuple[type[Exception], ...]:
            connection = self.connection
            return (OperationalError, *connection.connection_errors, *connection.channel_errors)

        def _resend(self, entry: Any, run: Run) -> None:
            """Send the messages of a recorded run that were not sent before, as far as this can be known.

            A message was sent if this process has sent it, or if the broker or the result store knows it.
            """
            if published.get(entry.name) == run.task_id:
                runs.mark_sent(entry.name)
                return
            self._resends = True
            try:
                self._send(entry, run, self.producer)
            finally:
                self._resends = False

        def _send(self, entry: Any, run: Run, producer: Any) -> None:
            runs.check()
            options = entry.options
            headers = {**(options.get("headers") or {}), RUN_HEADER: run.number}
            entry.options = {**options, "headers": headers}
            self._run, self._messages, self._failed = run, 0, False
            try:
                super().apply_entry(entry, producer=producer)  # logs an error of the broker
            finally:
                self._run, entry.options = None, options
            if not self._failed:
                published[entry.name] = run.task_id
                runs.mark_sent(entry.name)

    return RecordingScheduler
