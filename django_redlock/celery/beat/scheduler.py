"""`LeaderScheduler`: the scheduler that ``celery beat`` runs on every machine."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from celery.beat import Scheduler
from celery.utils.imports import load_extension_class_names, symbol_by_name
from django.core.exceptions import ImproperlyConfigured

from ...backend_registry import DEFAULT_ALIAS, locks
from ...backends.redis import RedisBackend
from ...core.election.leader import Leader
from ...core.events import logger
from ...core.process.clock import monotonic
from ...errors import LockError
from .recording_scheduler import recording_scheduler
from .runs import LeadEnded, Runs

LEAD_NAME = "celery-beat"
WRAPPED = "celery.beat:PersistentScheduler"
WAKE_SECONDS = 1.0  # longest time until the scheduler notices the beginning or the end of a term
STORE_PAUSE_SECONDS = 0.5  # pause after an error of the store


class BeatTerm(NamedTuple):
    """The wrapped scheduler and the recorded runs of one term, the time for which this process leads."""

    scheduler: Any
    runs: Runs


class LeaderScheduler:
    """A scheduler for ``celery beat`` on several machines. It wraps another scheduler, and only the leader sends tasks.

    The lock store keeps the time at which each entry of the schedule last ran. The next leader goes on from these
    times. Settings of the Celery app: ``redlock_beat_scheduler`` (the wrapped scheduler), ``redlock_beat_using`` (the
    alias of a ``RedisBackend``), ``redlock_beat_name`` (the name of the leader's lock), ``redlock_beat_ttl`` and
    ``redlock_beat_stop_before`` (seconds, see ``Backend.leader``).

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
            on_lost=self._on_lost,
            ttl=get("redlock_beat_ttl"),
            stop_before=get("redlock_beat_stop_before"),
            owner={"command": "celery beat"},
        )
        self._standing = False
        self._closing = False
        self._term: BeatTerm | None = None
        self._next_tick = 0.0
        self._published: dict[str, str] = {}
        self._in_tick = False
        self._sending = threading.Lock()

    @property
    def info(self) -> str:
        """A line for the banner of ``celery beat``."""
        return f"    . leader -> {self._leader.name}, {self._wrapped.__module__}.{self._wrapped.__name__}"

    @property
    def schedule(self) -> Any:
        """The schedule of the wrapped scheduler; ``{}`` while another process leads."""
        return self._term.scheduler.schedule if self._term else {}

    def tick(self) -> float:
        """Let the wrapped scheduler send the tasks that are due, if this process leads. Returns the seconds to sleep.

        While another process leads, wait up to a second for the lead. Raises ``SystemExit`` after `close`. The signal
        handler of ``celery beat`` raises it too, but Python discards it if the signal interrupts a finalizer, for
        example ``AsyncResult.__del__``.
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
        if self._term is not None and self._term.runs.token != self._leader.fencing_token:
            self._end_term()
        if self._term is None and not self._leader.wait(WAKE_SECONDS):
            return 0.0
        with self._sending:
            return min(self._tick_wrapped(), WAKE_SECONDS)

    def _tick_wrapped(self) -> float:
        if self._term is None:
            runs = Runs(self._backend, self._leader)
            scheduler = recording_scheduler(self._wrapped, runs, self._published)(**self._options)
            self._term, self._next_tick = BeatTerm(scheduler, runs), 0.0
        if (left := self._next_tick - monotonic()) > 0:
            return left
        interval: float = self._term.scheduler.tick() or 0.0
        self._next_tick = monotonic() + interval
        return interval

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            try:
                term.scheduler.close()
            except Exception:
                logger.exception("beat: the scheduler can't be closed")

    def _on_lost(self, leader: Leader) -> None:
        """Wait until a tick that sends tasks has ended, or until the lease ends. Called when the lead ends."""
        if self._sending.acquire(timeout=leader.remaining):
            self._sending.release()

    def should_sync(self) -> bool:
        """Return ``False``: the wrapped scheduler writes its schedule itself, when it sends and when it is closed."""
        return False

    def close(self) -> None:
        """Release the lead, so that another process can lead at once.

        ``celery beat`` calls this method in its signal handler and again at its end. If the signal has interrupted a
        tick, the first call releases nothing, and the second call, after the tick, releases the lead.
        """
        self._closing = True
        if self._in_tick:
            return
        self._end_term()
        if self._standing:
            self._standing = False
            self._leader.__exit__()
