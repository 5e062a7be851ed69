"""Prometheus metrics: counters, histograms and a gauge. No label contains a lock's name, so there are few series.

The numbers are up to a second old. If ``PROMETHEUS_MULTIPROC_DIR`` is set, prometheus_client adds up all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any
from weakref import WeakSet

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from ..core.background.work import background
from ..history.event_queue import EventRecord, Listener, event_queue
from . import METRICS, measured

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)  # seconds

_installed: WeakSet[CollectorRegistry] = WeakSet()


def install(registry: CollectorRegistry = REGISTRY) -> None:
    """Register the metrics in ``registry`` and count events from now on. A second call has no effect."""
    if registry not in _installed:
        _installed.add(registry)
        event_queue.subscribe(f"prometheus {id(registry)}", _counter(registry))


def _counter(registry: CollectorRegistry) -> Listener:
    """Return a function that counts a batch of events in new metrics of ``registry``, and sets those of held locks."""
    counter = partial(Counter, registry=registry)
    histogram = partial(Histogram, unit="seconds", buckets=BUCKETS, registry=registry)
    # By metric, a function that returns the counter or histogram for the values of the labels.
    series: dict[str, Callable[..., Any]] = {}
    for each in METRICS:
        make: Callable[..., Any] = histogram if each.seconds else counter
        series[each.prometheus] = cache(make(f"redlock_{each.prometheus}", each.help, tuple(each.labels)).labels)
    # `livesum` adds up the processes that live.
    held_locks = Gauge(
        "redlock_held", "Locks that are held", ("backend", "kind"), registry=registry, multiprocess_mode="livesum"
    )
    known: set[tuple[str, str]] = set()  # backend and kind of each lock that was acquired

    def observe(records: Sequence[EventRecord]) -> None:
        for metric, labels, value in measured(records):
            one = series[metric.prometheus](*labels.values())
            one.observe(value) if metric.seconds else one.inc()
        known.update((record.alias, record.primitive) for record in records if record.kind == "acquired")
        held = background.held_counts()
        for label in known:
            held_locks.labels(*label).set(held[label])

    return observe
