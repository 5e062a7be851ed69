"""Prometheus metrics: counters, histograms and a gauge. No label contains a lock's name, so there are few series.

If ``PROMETHEUS_MULTIPROC_DIR`` is set, each process writes its numbers to files in that directory, as prometheus_client
does with all metrics. Otherwise a scrape reads the up-to-date numbers of the process that answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..core.renewal.registry import renewal
from ..history.event_queue import EventRecord, event_queue
from ..history.recorder import recorder

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)  # seconds
LOCK = ("backend", "kind")
HELD = ("redlock_held", "Locks that are held")

_installed: WeakKeyDictionary[CollectorRegistry, PrometheusListener] = WeakKeyDictionary()


def install(registry: CollectorRegistry = REGISTRY) -> None:
    """Register the metrics in ``registry`` and count events from now on. A second call has no effect."""
    if registry not in _installed:
        metrics = _installed[registry] = PrometheusListener(registry)
        event_queue.subscribe(f"prometheus {id(registry)}", metrics.observe)


class HeldLocksCollector(Collector):
    """Collects the gauge ``redlock_held`` at each scrape: the number of locks that this process holds.

    ``labels``: the pairs of backend alias and kind of lock to report. `collect` first has the queued events counted.
    The collector is registered before the counters, so a scrape reads the counters after that.
    """

    def __init__(self, labels: set[tuple[str, str]]) -> None:
        self._labels = labels

    def describe(self) -> Iterable[Metric]:
        return [GaugeMetricFamily(*HELD, labels=LOCK)]

    def collect(self) -> Iterable[Metric]:
        event_queue.drain()
        now, family = renewal.held_counts(), GaugeMetricFamily(*HELD, labels=LOCK)
        for label in sorted(self._labels):
            family.add_metric(label, now[label])
        return [family]


class PrometheusListener:
    """Counts events of locks in the metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._labels: set[tuple[str, str]] = set()  # backend and kind of each lock that was acquired
        self._gauge: Gauge | None = None
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            self._gauge = Gauge(*HELD, LOCK, registry=registry, multiprocess_mode="livesum")
        else:
            registry.register(HeldLocksCollector(self._labels))
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
        self.dropped = counter(
            "redlock_events_dropped", "Events that were not counted, or not written to the store", ("by",)
        )
        self._dropped = {"queue": 0, "history": 0}
        self._handlers: dict[str, Callable[[EventRecord], None]] = {
            "acquired": self._acquired,
            "released": lambda record: self.held(record.alias, record.primitive).observe(record.held),
            "refused": lambda record: self.refused(record.alias, record.primitive, record.reason).inc(),
            "lost": self._lost,
            "forced": lambda record: self.forced(record.alias).inc(),
            "fault": lambda record: self.failed(record.name, record.reason).inc(),
            "duplicate": lambda record: self.duplicates(record.name, record.reason).inc(),
        }
        for by in self._dropped:
            self.dropped.labels(by)  # exports 0 before the first drop

    def observe(self, records: Sequence[EventRecord]) -> None:
        """Count ``records``, a batch of events, and the events that were dropped.

        This method is the listener for `EventQueue.subscribe`. With ``PROMETHEUS_MULTIPROC_DIR`` it also updates the
        gauge ``redlock_held``.
        """
        for record in records:
            if handler := self._handlers.get(record.kind):
                handler(record)
        for by, now in {"queue": event_queue.dropped, "history": recorder.dropped}.items():
            self.dropped.labels(by).inc(max(0, now - self._dropped[by]))
            self._dropped[by] = now
        if self._gauge:
            held = renewal.held_counts()
            for label in self._labels:
                self._gauge.labels(*label).set(held[label])

    def _acquired(self, record: EventRecord) -> None:
        self.acquired(record.alias, record.primitive).inc()
        self.waited(record.alias, record.primitive).observe(record.waited)
        self._labels.add((record.alias, record.primitive))

    def _lost(self, record: EventRecord) -> None:
        self.lost(record.alias, record.primitive).inc()
        self.held(record.alias, record.primitive).observe(record.held)
