"""Prometheus metrics: counters, histograms and a gauge. No label contains a lock's name, so there are few series.

The numbers are up to a second old. If ``PROMETHEUS_MULTIPROC_DIR`` is set, prometheus_client adds up all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from ..core.background.work import background
from ..history.event_queue import EventRecord, event_queue
from . import METRICS, measured

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)  # seconds

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
        # By metric, a function that returns the counter or histogram for the values of the labels.
        self.series: dict[str, Callable[..., Any]] = {}
        for each in METRICS:
            make: Callable[..., Any] = histogram if each.seconds else counter
            metric = make(f"redlock_{each.prometheus}", each.help, tuple(each.labels))
            self.series[each.prometheus] = cache(metric.labels)
        # `livesum` adds up the processes that live.
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livesum")
        self._held = gauge("redlock_held", "Locks that are held", ("backend", "kind"))
        self._known: set[tuple[str, str]] = set()  # backend and kind of each lock that was acquired

    def observe(self, records: Sequence[EventRecord]) -> None:
        """Count a batch of events, and set the number of held locks. The `EventQueue` calls this method."""
        for metric, labels, value in measured(records):
            series = self.series[metric.prometheus](*labels.values())
            series.observe(value) if metric.seconds else series.inc()
        self._known |= {(record.alias, record.primitive) for record in records if record.kind == "acquired"}
        held = background.held_counts()
        for label in self._known:
            self._held.labels(*label).set(held[label])
