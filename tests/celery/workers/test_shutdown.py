"""Workers that shut down: locks end, and redelivered tasks run."""

import json
import signal

import pytest

from tests.celery.conftest import logged
from tests.support.service import poll


def known_as_active(app, *results):
    """Wait until the worker's main process knows that bodies run. A cold shutdown before that does not end them."""

    def active():
        replies = (app.control.inspect(timeout=1).active() or {}).values()
        return {result.id for result in results} <= {each["id"] for calls in replies for each in calls}

    poll(active, timeout=30, what="active calls")


def test_warm_shutdown(tasks, start_worker, own_queue, take_over, seen, free, go):
    """On SIGTERM the running body ends and frees its lock, and prefetched tasks run in the next worker."""
    with start_worker("prefork", own_queue) as first:
        running = tasks.long.apply_async((seen.name, tasks.UNTIL_GO), queue=own_queue)
        seen.wait("start")
        waiting = tasks.executed.apply_async((seen.name,), queue=own_queue, countdown=3)
        logged(first, f"[{waiting.id}] received")
        first.signal(signal.SIGTERM)
        go()
        first.process.wait(60)
    assert running.get(timeout=60) == seen.name
    free(f"long:{seen.name}")
    take_over()
    assert waiting.get(timeout=60) == seen.name
    free(f"executed:{seen.name}")


@pytest.mark.parametrize("grace", [0, 1])
def test_cold_shutdown(tasks, start_worker, own_queue, take_over, seen, free, go, grace):
    """On SIGQUIT, also after a soft shutdown, a body that is cut off frees its lock. With acks_late the message comes
    back to its owner and runs in the next worker.
    """
    conf = json.dumps({"worker_soft_shutdown_timeout": grace})
    with start_worker("prefork", own_queue, CELERY_CONF=conf) as first:
        call = (seen.name, tasks.UNTIL_GO)
        lost, late = (task.apply_async(call, queue=own_queue) for task in (tasks.long, tasks.less_late))
        known_as_active(tasks.app, lost, late)
        seen.wait("start", 2)
        first.signal(signal.SIGQUIT)
        first.process.wait(60)
    free(f"long:{seen.name}")
    go()
    take_over()
    assert late.get(timeout=60) == seen.name
    free(f"less_late:{seen.name}")
    assert [event["id"] for event in seen.events("end")] == [late.id]


def test_processes_that_run_one_task_each(tasks, start_worker, own_queue, seen, free):
    """With --max-tasks-per-child=1 no lock stays behind when a child ends."""
    with start_worker("prefork", own_queue, "--max-tasks-per-child", "1"):
        assert tasks.long.apply_async((seen.name,), queue=own_queue).get(timeout=60) == seen.name
        free(f"long:{seen.name}")
        assert tasks.retries.apply_async((seen.name,), queue=own_queue).get(timeout=60) == seen.name
        free(f"retries:{seen.name}")
    assert len({event["pid"] for event in seen.events("start")}) == 4
