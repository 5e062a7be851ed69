"""OpenTelemetry spans and metrics. Uses only the OpenTelemetry API: the project sets up the SDK."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from opentelemetry import context, metrics, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

from .. import __version__
from ..core.background.work import background
from ..history.event_queue import EventRecord, Listener, event_queue
from . import METRICS, measured

NAME = "django_redlock"
ATTRIBUTES = {"error": "error.type"}  # labels whose attribute is not `redlock.` and the label


def install(
    tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None, spans: bool = True
) -> None:
    """Export the events of locks from now on as metrics and, unless ``spans`` is false, as spans.

    ``None`` for a provider means the global provider. A second call replaces the providers and ``spans`` of the first.
    """
    event_queue.subscribe("opentelemetry metrics", _counter(metrics.get_meter(NAME, __version__, meter_provider)))
    if spans:
        tracer = trace.get_tracer(NAME, __version__, tracer_provider)
        event_queue.context = context.get_current
        event_queue.subscribe("opentelemetry spans", partial(_make_spans, tracer))
    else:
        event_queue.context = None
        event_queue.unsubscribe("opentelemetry spans")


def _counter(meter: metrics.Meter) -> Listener:
    """Return a function that counts a batch of events in the instruments of ``meter``."""
    instruments: dict[str, Any] = {
        each.opentelemetry: (meter.create_histogram if each.seconds else meter.create_counter)(
            f"redlock.{each.opentelemetry}", each.unit, each.help
        )
        for each in METRICS
    }
    meter.create_observable_up_down_counter("redlock.held", [_held], "{lock}", "Locks that are held")

    def observe(records: Sequence[EventRecord]) -> None:
        for metric, labels, value in measured(records):
            instrument = instruments[metric.opentelemetry]
            attributes = {ATTRIBUTES.get(label, f"redlock.{label}"): text for label, text in labels.items()}
            (instrument.record if metric.seconds else instrument.add)(value, attributes)

    return observe


def _held(_options: CallbackOptions) -> Iterable[Observation]:
    return [
        Observation(number, {"redlock.backend": alias, "redlock.kind": kind})
        for (alias, kind), number in background.held_counts().items()
    ]


def _make_spans(tracer: trace.Tracer, records: Sequence[EventRecord]) -> None:
    """Make a span for each call of ``acquire()`` and a span for each hold, in the trace of the caller."""
    for record in records:
        if record.kind in ("acquired", "refused"):
            _make_span(tracer, "redlock.acquire", SpanKind.CLIENT, record, record.waited)
        elif record.kind in ("released", "lost"):
            _make_span(tracer, "redlock.hold", SpanKind.INTERNAL, record, record.held)


def _make_span(tracer: trace.Tracer, name: str, kind: SpanKind, record: EventRecord, seconds: float) -> None:
    end = round(record.at * 1e9)
    attributes = {
        "redlock.backend": record.alias,
        "redlock.kind": record.primitive,
        "redlock.name": record.name,
        "redlock.outcome": record.kind,
    } | ({"redlock.reason": record.reason} if record.reason else {})
    span = tracer.start_span(name, record.context, kind, attributes, start_time=end - round(seconds * 1e9))
    if record.kind in ("refused", "lost"):
        span.set_status(Status(StatusCode.ERROR, record.reason))
    span.end(end)
