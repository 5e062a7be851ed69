"""The app `tests.celery.app`, whose worker reports to OpenTelemetry and Sentry."""

from typing import Any

import sentry_sdk
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_trace_id, get_current_span
from sentry_sdk.integrations.celery import CeleryIntegration

from django_redlock.celery import single_instance_task
from tests.celery.app import app
from tests.celery.records import UNTIL_GO, last, note

sentry_sdk.init(
    "http://key@127.0.0.1:9/1", integrations=[CeleryIntegration()], traces_sample_rate=1.0, transport=lambda _: None
)
CeleryInstrumentor().instrument(tracer_provider=TracerProvider())


@app.task(bind=True)
@single_instance_task(key="traced:{name}", mode="until_and_while_executing", ttl=60)
def traced(self: Any, name: str, failures: int = 0) -> str:
    """Record the trace that this run belongs to, and fail some times."""
    trace = format_trace_id(get_current_span().get_span_context().trace_id)
    span = sentry_sdk.get_current_span()
    sentry = span and span.trace_id
    note(name, "start", id=self.request.id, opentelemetry=trace, sentry=sentry, colour=self.request.get("colour"))
    last(name, UNTIL_GO)
    if self.request.retries < failures:
        raise self.retry(countdown=0.1)
    return name
