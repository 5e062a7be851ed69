"""OpenTelemetry spans and metrics. Uses only the OpenTelemetry API: the project sets up the SDK."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry import context, metrics, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

from .. import __version__
from ..core.background.work import background
from ..history.event_queue import EventRecord, event_queue
from . import METRICS, measured

NAME = "django_redlock"
ATTRIBUTES = {"error": "error.type"}  # labels whose attribute is not `redlock.` and the label


def install(
    tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None, spans: bool = True
) -> None:
    """Export the events of locks from now on as metrics and, unless ``spans`` is false, as spans.

    ``None`` for a provider means the global provider. A second call replaces the providers and ``spans`` of the first.
    """
    event_queue.subscribe(
        "opentelemetry metrics", MetricsListener(metrics.get_meter(NAME, __version__, meter_provider)).observe
    )
    if spans:
        tracer = trace.get_tracer(NAME, __version__, tracer_provider)
        event_queue.context = context.get_current
        event_queue.subscribe("opentelemetry spans", SpanListener(tracer).observe)
    else:
        event_queue.context = None
        event_queue.unsubscribe("opentelemetry spans")


class MetricsListener:
    """Counts events of locks in the instruments of one meter."""

    def __init__(self, meter: metrics.Meter) -> None:
        self._instruments: dict[str, Any] = {
            each.opentelemetry: (meter.create_histogram if each.seconds else meter.create_counter)(
                f"redlock.{each.opentelemetry}", each.unit, each.help
            )
            for each in METRICS
        }
        meter.create_observable_up_down_counter("redlock.held", [_held], "{lock}", "Locks that are held")

    def observe(self, records: Sequence[EventRecord]) -> None:
        """Count ``records``, a batch of events. A listener of the `EventQueue`."""
        for metric, labels, value in measured(records):
            instrument = self._instruments[metric.opentelemetry]
            attributes = {ATTRIBUTES.get(label, f"redlock.{label}"): text for label, text in labels.items()}
            (instrument.record if metric.seconds else instrument.add)(value, attributes)


def _held(_options: CallbackOptions) -> Iterable[Observation]:
    return [
        Observation(number, {"redlock.backend": alias, "redlock.kind": kind})
        for (alias, kind), number in background.held_counts().items()
    ]


class SpanListener:
    """Makes a span for each call of ``acquire()`` and a span for each hold, in the trace of the caller."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def observe(self, records: Sequence[EventRecord]) -> None:
        """Make the spans for ``records``, a batch of events. A listener of the `EventQueue`."""
        for record in records:
            if record.kind in ("acquired", "refused"):
                self._span("redlock.acquire", record, record.waited, failed=record.kind == "refused")
            elif record.kind in ("released", "lost"):
                self._span("redlock.hold", record, record.held, failed=record.kind == "lost")

    def _span(self, name: str, record: EventRecord, seconds: float, *, failed: bool) -> None:
        end = round(record.at * 1e9)
        span = self._tracer.start_span(
            name,
            record.context,
            SpanKind.CLIENT if name == "redlock.acquire" else SpanKind.INTERNAL,
            {
                "redlock.backend": record.alias,
                "redlock.kind": record.primitive,
                "redlock.name": record.name,
                "redlock.outcome": record.kind,
            },
            start_time=end - round(seconds * 1e9),
        )
        if record.reason:
            span.set_attribute("redlock.reason", record.reason)
        if failed:
            span.set_status(Status(StatusCode.ERROR, record.reason))
        span.end(end)
