"""`LeaderScheduler`: the scheduler that ``celery beat`` runs on every machine."""

from __future__ import annotations

from typing import Any

from celery.beat import Scheduler
from celery.utils.imports import load_extension_class_names, symbol_by_name
from django.core.exceptions import ImproperlyConfigured
from kombu.exceptions import OperationalError

from ...backend_registry import DEFAULT_ALIAS, locks
from ...backends.redis import RedisBackend
from ...core.election.leader import Leader
from ...core.events import logger
from ...core.process.clock import monotonic
from ...errors import LockError, LockNotAcquired
from .runs import LeadEnded, Runs

LEAD_NAME = "celery-beat"
WRAPPED = "celery.beat:PersistentScheduler"
RUN_HEADER = "redlock_beat_run"  # message header with the number of the run
WAKE_SECONDS = 1.0  # longest time until the scheduler notices the beginning or the end of a term
RESEND_SECONDS = 1.0  # pause before a message is sent again after an error of the broker
STORE_PAUSE_SECONDS = 0.5  # pause after an error of the store


class RecordingScheduler(Scheduler):
    """Mixin for a scheduler: reads each entry's last run from ``runs``, and records a run before its message is sent.

    After a ``LeadEnded`` or ``LockError``, the scheduler must not tick again.
    """

    runs: Runs
    _is_refused = False  # whether the broker has refused a message of the present run

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """Send the messages of recorded, unsent runs, and the task that is due. Returns the seconds to sleep."""
        for name in self.runs.unsent:
            if (entry := self.schedule.get(name)) is not None:
                logger.warning("beat: sending %r, whose last run was recorded, but not sent", name)
                self.apply_entry(entry, self.producer)
        interval = super().tick(*args, **kwargs)
        return min(interval or 0.0, RESEND_SECONDS) if self.runs.unsent else interval

    def populate_heap(self, *args: Any, **kwargs: Any) -> None:
        """Set the entries' last runs to the recorded times, and build the heap of entries."""
        for entry in self.schedule.values():
            self.runs.restore(entry)
        self.runs.forget_removed(self.schedule)
        super().populate_heap(*args, **kwargs)

    def is_due(self, entry: Any) -> Any:
        """Return whether the entry is due after its recorded run, and the seconds until the next check."""
        self.runs.restore(entry)
        return super().is_due(entry)

    def reserve(self, entry: Any) -> Any:
        """Record a run of ``entry``, which is due. Returns the entry for the next run, as Celery does."""
        following: Any = super().reserve(entry)
        self.runs.begin(entry.name, following.last_run_at)
        return following

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send the messages of the entry's last run, and mark the run as sent unless the broker refuses one."""
        self.runs.check()
        run: Any = self.runs.last(entry.name)
        options = entry.options
        entry.options = {**options, "headers": {**(options.get("headers") or {}), RUN_HEADER: run.number}}
        self._is_refused = False
        try:
            super().apply_entry(entry, producer=producer)  # logs an error of the broker
        finally:
            entry.options = options
        if not self._is_refused:
            self.runs.mark_sent(entry.name, run)

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        """Send a message, and note whether the broker refused it. After other errors it is not sent again."""
        try:
            return super().apply_async(entry, producer=producer, advance=advance, **kwargs)
        except Exception as error:
            broker: Any = (OperationalError, *self.connection.connection_errors, *self.connection.channel_errors)
            cause = error.__context__  # a duplicate's `LockNotAcquired` is an `OSError`, as errors of the broker are
            self._is_refused |= isinstance(cause, broker) and not isinstance(cause, LockNotAcquired)
            raise


class LeaderScheduler:
    """A scheduler for ``celery beat`` on several machines. It wraps another scheduler, and only the leader sends tasks.

    The lock store keeps the time at which each entry of the schedule last ran. The next leader continues from these
    times. Settings of the Celery app:

    - ``redlock_beat_scheduler``: the wrapped scheduler.
    - ``redlock_beat_using``: the alias of a ``RedisBackend``.
    - ``redlock_beat_name``: the name of the leader's lock.
    - ``redlock_beat_ttl``, ``redlock_beat_stop_before``: seconds, see ``Backend.leader``.

    Raises ``ImproperlyConfigured`` for a backend of another kind, ``TypeError`` and ``ValueError`` for bad values.
    """

    def __init__(self, app: Any, max_interval: float | None = None, lazy: bool = False, **options: Any) -> None:
        get = app.conf.get
        aliases = dict(load_extension_class_names("celery.beat_schedulers"))  # type: ignore[var-annotated, arg-type]
        self._wrapped = symbol_by_name(get("redlock_beat_scheduler") or WRAPPED, aliases=aliases)
        if getattr(self._wrapped, "tick", None) is not Scheduler.tick:
            raise ImproperlyConfigured(
                f"redlock_beat_scheduler={self._wrapped.__module__}.{self._wrapped.__name__} has a tick() of its own, "
                "so its runs can't be recorded. RedBeat has a lock and a record of its own: run it without "
                "LeaderScheduler"
            )
        using = get("redlock_beat_using") or DEFAULT_ALIAS
        backend = locks[using]
        if not isinstance(backend, RedisBackend):
            raise ImproperlyConfigured(
                f"redlock_beat_using={using!r} is a {type(backend).__name__}: "
                "celery beat needs a RedisBackend, which keeps the last runs"
            )
        self._backend = backend
        self._options = {"app": app, "max_interval": max_interval, **options}
        self.max_interval = max_interval or app.conf.beat_max_loop_interval or self._wrapped.max_interval
        self._leader: Leader = backend.leader(
            get("redlock_beat_name") or LEAD_NAME,
            ttl=get("redlock_beat_ttl"),
            stop_before=get("redlock_beat_stop_before"),
            owner={"command": "celery beat"},
        )
        self._standing = self._in_tick = self._closing = False
        self._scheduler: Any = None  # the wrapped scheduler while this process leads
        self._next_tick = 0.0

    @property
    def info(self) -> str:
        """Return a line for the start message of ``celery beat``."""
        return f"    . leader -> {self._leader.name}, {self._wrapped.__module__}.{self._wrapped.__name__}"

    @property
    def schedule(self) -> Any:
        """The schedule of the wrapped scheduler; ``{}`` while another process leads."""
        return self._scheduler.schedule if self._scheduler else {}

    def tick(self) -> float:
        """Let the wrapped scheduler send the tasks that are due, if this process leads. Returns the seconds to sleep.

        While another process leads, wait up to a second for the lead. Raises ``SystemExit`` after `close`, because
        Python discards the ``SystemExit`` of the signal handler if the signal interrupts a finalizer such as
        ``AsyncResult.__del__``.
        """
        if self._closing:
            raise SystemExit
        try:
            self._in_tick = True
            return self._tick()
        except LeadEnded:
            logger.info("beat: another process leads")
        except LockError as error:
            logger.warning("beat: %s", error)
        finally:
            self._in_tick = False
        self._end_term()
        return STORE_PAUSE_SECONDS

    def _tick(self) -> float:
        if not self._standing:
            self._standing = True
            self._leader.__enter__()
        if self._scheduler is None:
            if not self._leader.wait(WAKE_SECONDS):
                return 0.0
            members = {"runs": Runs(self._backend, self._leader)}
            self._scheduler = type("LeadingScheduler", (RecordingScheduler, self._wrapped), members)(**self._options)
            self._next_tick = 0.0
        self._scheduler.runs.check()
        if (left := self._next_tick - monotonic()) <= 0:
            left = self._scheduler.tick() or 0.0
            self._next_tick = monotonic() + left
        return min(left, WAKE_SECONDS)

    def _end_term(self) -> None:
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            try:
                scheduler.close()
            except Exception:
                logger.exception("beat: the scheduler can't be closed")

    def should_sync(self) -> bool:
        """Return ``False``: the wrapped scheduler decides when to write its schedule."""
        return False

    def close(self) -> None:
        """Release the lead, so that another process can lead at once.

        ``celery beat`` calls this method in its signal handler and again when it ends. If the signal interrupts a tick,
        only the second call releases the lead.
        """
        self._closing = True
        if self._in_tick:
            return
        self._end_term()
        if self._standing:
            self._standing = False
            self._leader.__exit__()
