"""Workers that shut down: locks end, and redelivered tasks run."""

import json
import os
import signal

import celery
import pytest

from tests.celery.workers.test_killed_processes import deliver_again
from tests.support.service import poll


def known_as_active(app, result):
    """Wait until the worker's main process knows that the body runs. A cold shutdown before that does not end it."""

    def active():
        replies = (app.control.inspect(timeout=1).active() or {}).values()
        return any(each["id"] == result.id for calls in replies for each in calls)

    poll(active, timeout=30, what="an active call")


def test_warm_shutdown(tasks, start_worker, own_queue, seen, free):
    """On SIGTERM the running body ends and frees its lock, and prefetched tasks run in the next worker."""
    with start_worker("prefork", own_queue) as worker:
        running = tasks.long.apply_async((seen.name, 1), queue=own_queue)
        seen.wait("start")
        waiting = tasks.executed.apply_async((seen.name,), queue=own_queue, countdown=3)
        worker.signal(signal.SIGTERM)
        worker.process.wait(60)
    assert running.get(timeout=60) == seen.name
    free(f"long:{seen.name}")
    with start_worker("prefork", own_queue):
        assert waiting.get(timeout=60) == seen.name
        free(f"executed:{seen.name}")


@pytest.mark.parametrize("grace", [0, 1])
def test_cold_shutdown(tasks, start_worker, own_queue, seen, free, grace):
    """On SIGQUIT a body that is cut off frees its lock, with and without a soft shutdown."""
    conf = json.dumps({"worker_soft_shutdown_timeout": grace})
    with start_worker("prefork", own_queue, CELERY_CONF=conf) as worker:
        known_as_active(tasks.app, tasks.long.apply_async((seen.name, 30), queue=own_queue))
        seen.wait("start")
        worker.signal(signal.SIGQUIT)
        worker.process.wait(60)
        free(f"long:{seen.name}")
    assert not seen.count("end")


@pytest.mark.parametrize("grace", [0, 1])
def test_cold_shutdown_with_redelivery(tasks, start_worker, own_queue, seen, started, free, go, grace):
    """On SIGQUIT with acks_late the message comes back to its owner and runs in the next worker."""
    conf = json.dumps({"worker_soft_shutdown_timeout": grace})
    with start_worker("prefork", own_queue, CELERY_CONF=conf, CELERY_VISIBILITY="1") as worker:
        result = started(tasks.less_late, own_queue)
        known_as_active(tasks.app, result)
        worker.signal(signal.SIGQUIT)
        worker.process.wait(60)
    go()
    deliver_again(tasks.app)
    with start_worker("prefork", own_queue, CELERY_VISIBILITY="1"):
        assert result.get(timeout=60) == seen.name
        free(f"less_late:{seen.name}")
    assert seen.count("end") == 1
    assert seen.overlap() == []


def test_processes_that_run_one_task_each(tasks, start_worker, own_queue, seen, free):
    """With --max-tasks-per-child=1 no lock stays behind when a child ends."""
    with start_worker("prefork", own_queue, "--max-tasks-per-child", "1"):
        assert tasks.long.apply_async((seen.name,), queue=own_queue).get(timeout=60) == seen.name
        free(f"long:{seen.name}")
        assert tasks.retries.apply_async((seen.name,), queue=own_queue).get(timeout=60) == seen.name
        free(f"retries:{seen.name}")
    assert len({event["pid"] for event in seen.events("start")}) == 4


@pytest.mark.skipif(celery.VERSION < (5, 7), reason="older Celery does not retry what its process was lost with")
def test_retry_of_a_lost_process(tasks, queue, seen, free, go):
    """With retry_on_worker_lost the retry that the main process sends is granted to the owner."""
    result = tasks.lost_retry.apply_async((seen.name, tasks.UNTIL_GO), queue=queue)
    os.kill(seen.wait("start")[0]["pid"], signal.SIGKILL)
    seen.wait("start", 2)
    assert tasks.lost_retry.apply_async((seen.name,), queue=queue).duplicate
    go()
    assert result.get(timeout=60) == seen.name
    assert {event["id"] for event in seen.events("start")} == {result.id}
    free(f"lost_retry:{seen.name}")
