"""Spans and metrics of OpenTelemetry."""

import gc
import json

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from django_redlock import lock, locks
from django_redlock.core.background.work import background
from django_redlock.history.event_queue import event_queue
from django_redlock.metrics import opentelemetry

pytestmark = pytest.mark.usefixtures("own_listeners")


@pytest.fixture
def spans():
    """`spans(request)`: the exported spans of that trace. `spans.provider` exports to `spans.exporter`."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    opentelemetry.install(provider, MeterProvider())

    def of(request):
        event_queue.flush()
        trace_id = request.get_span_context().trace_id
        return [span for span in exporter.get_finished_spans() if span.context.trace_id == trace_id]

    of.exporter, of.provider = exporter, provider
    yield of
    provider.shutdown()


def test_spans(spans):
    """Waiting and holding are spans of the caller's trace, with name, backend and outcome."""
    with TracerProvider().get_tracer("test").start_as_current_span("request") as request, lock("stock"):
        lock("stock").acquire(blocking=False)
    acquired, refused, hold = spans(request)
    assert [acquired.name, refused.name, hold.name] == ["redlock.acquire", "redlock.acquire", "redlock.hold"]
    assert {span.parent.span_id for span in (acquired, refused, hold)} == {request.get_span_context().span_id}
    assert acquired.attributes == {
        "redlock.backend": "default",
        "redlock.kind": "mutex",
        "redlock.name": "stock",
        "redlock.outcome": "acquired",
    }
    assert refused.attributes["redlock.reason"] == "taken"
    assert [span.status.is_ok for span in (acquired, refused, hold)] == [True, False, True]
    assert acquired.start_time <= acquired.end_time <= refused.end_time <= hold.end_time


async def test_spans_of_coroutines(spans):
    """In coroutines the spans belong to the trace of their task."""
    with TracerProvider().get_tracer("test").start_as_current_span("request") as request:
        async with lock("stock"):
            pass
    assert {span.parent.span_id for span in spans(request)} == {request.get_span_context().span_id}
    await locks["default"].aclose()


def test_numbers(lost):
    reader = InMemoryMetricReader()
    opentelemetry.install(TracerProvider(), MeterProvider([reader]))

    def read():
        event_queue.flush()
        data = json.loads(reader.get_metrics_data().to_json())
        metrics = data["resource_metrics"][0]["scope_metrics"][0]["metrics"]
        return {each["name"]: each["data"]["data_points"] for each in metrics}

    def held(points):
        mutex = {"redlock.backend": "default", "redlock.kind": "mutex"}
        return sum(point["value"] for point in points.get("redlock.held", []) if point["attributes"] == mutex)

    gc.collect()
    before = background.held_counts()["default", "mutex"]  # what a test before holds still is counted, too
    with lock("stock", on_lost="warn"):
        lock("stock").acquire(blocking=False)
        assert held(read()) - before == 1
        locks["default"].force_release("stock")
    assert lost.wait(20)
    points = read()
    assert points["redlock.acquisitions"][0]["value"] == 1
    assert points["redlock.refusals"][0]["attributes"]["redlock.reason"] == "taken"
    assert points["redlock.losses"][0]["value"] == points["redlock.forced_releases"][0]["value"] == 1
    assert points["redlock.wait.duration"][0]["count"] == points["redlock.hold.duration"][0]["count"] == 1
    assert held(points) == before


def test_no_spans(spans):
    opentelemetry.install(spans.provider, MeterProvider(), spans=False)
    with lock("stock"):
        pass
    event_queue.flush()
    assert spans.exporter.get_finished_spans() == ()
    assert event_queue.context is None
