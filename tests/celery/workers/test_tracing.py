"""OpenTelemetry and Sentry: a call that is put off or retried stays in the trace of its sender."""

import pytest

from tests.celery.conftest import logged

pytest.importorskip("sentry_sdk")
pytest.importorskip("opentelemetry.instrumentation.celery")

TRACES = ["1" * 32, "2" * 32]


def test_traces_of_a_call_that_was_put_off_and_retried(tasks, start_worker, own_queue, seen, go):
    """Each run of a call has the trace ids and the headers that its first message carried."""
    results = []
    with start_worker("threads", own_queue, app="tests.celery.traced_app") as worker:
        for number, trace in enumerate(TRACES):
            sentry = {"sentry-trace": f"{trace}-{'3' * 16}-1"}  # Sentry's integration nests its headers
            headers = {"traceparent": f"00-{trace}-{'3' * 16}-01", "colour": trace[0], "headers": sentry}
            options = {"headers": headers, "queue": own_queue, "task_id": f"{trace[0]}-{seen.name}"}
            results.append(tasks.app.send_task("tests.celery.traced_app.traced", (seen.name, number), **options))
            seen.wait("start", 1)
        logged(worker, f"[{results[1].id}] ignored")  # it is put off
        go()
        assert [result.get(timeout=60) for result in results] == [seen.name] * 2
    runs = [
        (event["id"][0], event["opentelemetry"], event["sentry"], event["colour"]) for event in seen.events("start")
    ]
    assert runs == [("1", TRACES[0], TRACES[0], "1"), *[("2", TRACES[1], TRACES[1], "2")] * 2]
