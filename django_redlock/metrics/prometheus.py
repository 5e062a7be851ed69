"""Prometheus metrics: counters, histograms and a gauge. No label contains a lock's name, so there are few series.

The numbers are up to a second old. If ``PROMETHEUS_MULTIPROC_DIR`` is set, prometheus_client adds up all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from ..core.renewal.registry import renewal
from ..history.event_queue import EventRecord, event_queue

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)  # seconds
LOCK = ("backend", "kind")

_installed: WeakKeyDictionary[CollectorRegistry, PrometheusListener] = WeakKeyDictionary()


def install(registry: CollectorRegistry = REGISTRY) -> None:
    """Register the metrics in ``registry`` and count events from now on. A second call has no effect."""
    if registry not in _installed:
        metrics = _installed[registry] = PrometheusListener(registry)
        event_queue.subscribe(f"prometheus {id(registry)}", metrics.observe)


class PrometheusListener:
    """Counts events of locks in the metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, unit="seconds", buckets=BUCKETS, registry=registry)
        self.acquired = cache(counter("redlock_acquisitions", "Locks acquired", LOCK).labels)
        self.refused = cache(counter("redlock_refusals", "Locks not acquired", (*LOCK, "reason")).labels)
        self.lost = cache(counter("redlock_losses", "Locks lost while held", LOCK).labels)
        self.forced = cache(counter("redlock_forced_releases", "Locks released by force", ("backend",)).labels)
        self.waited = cache(histogram("redlock_wait", "Time until a lock was acquired", LOCK).labels)
        self.held = cache(histogram("redlock_hold", "Time for which a lock was held", LOCK).labels)
        self.failed = cache(counter("redlock_node_errors", "Failed requests to nodes", ("node", "error")).labels)
        self.duplicates = cache(counter("redlock_task_duplicates", "Calls of tasks", ("task", "found_at")).labels)
        # `livesum` adds up the processes that live.
        self.now = Gauge("redlock_held", "Locks that are held", LOCK, registry=registry, multiprocess_mode="livesum")
        self._labels: set[tuple[str, str]] = set()  # backend and kind of each lock that was acquired
        self._handlers: dict[str, Callable[[EventRecord], None]] = {
            "acquired": self._acquired,
            "released": lambda record: self.held(record.alias, record.primitive).observe(record.held),
            "refused": lambda record: self.refused(record.alias, record.primitive, record.reason).inc(),
            "lost": self._lost,
            "forced": lambda record: self.forced(record.alias).inc(),
            "fault": lambda record: self.failed(record.name, record.reason).inc(),
            "duplicate": lambda record: self.duplicates(record.name, record.reason).inc(),
        }

    def observe(self, records: Sequence[EventRecord]) -> None:
        """Count ``records``, a batch of events, and the locks that are held. A listener of the `EventQueue`."""
        for record in records:
            if handler := self._handlers.get(record.kind):
                handler(record)
        held = renewal.held_counts()
        for label in self._labels:
            self.now.labels(*label).set(held[label])

    def _acquired(self, record: EventRecord) -> None:
        self.acquired(record.alias, record.primitive).inc()
        self.waited(record.alias, record.primitive).observe(record.waited)
        self._labels.add((record.alias, record.primitive))

    def _lost(self, record: EventRecord) -> None:
        self.lost(record.alias, record.primitive).inc()
        self.held(record.alias, record.primitive).observe(record.held)
