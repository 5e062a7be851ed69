"""Processes are killed and brokers redeliver: no task runs twice at once, is lost, or stays locked."""

import json
import os
import re
import signal

import celery
import pytest
from billiard.exceptions import WorkerLostError

from testproject.redis_server import RedisServer
from tests.celery.conftest import deliver_again, logged
from tests.support.service import poll


@pytest.mark.parametrize("by", ["kill", "revoke"])
def test_killed_child_frees_its_lock(tasks, queue, seen, free, by):
    """The main process releases the lock of a killed child at once, long before the lease ends."""
    result = tasks.long.apply_async((seen.name, 30), queue=queue)
    pid = seen.wait("start")[0]["pid"]
    os.kill(pid, signal.SIGKILL) if by == "kill" else result.revoke(terminate=True, signal="SIGKILL")
    free(f"long:{seen.name}")


def duplicates_until(ready, submit):
    """Submit a call again and again until `ready()`. All of these calls must be duplicates."""
    results = []
    poll(lambda: results.append(submit()) or ready(), timeout=30, what="a run of the first call")
    assert all(result.duplicate for result in results)


# Older Celery neither delivers nor retries such calls again.
NEWER = pytest.mark.skipif(celery.VERSION < (5, 7), reason="needs Celery 5.7")
LOST = ["long_late", *(pytest.param(kind, marks=NEWER) for kind in ("lost_retry", "exits"))]


@pytest.mark.parametrize("kind", LOST)
def test_the_next_run_after_a_lost_process(tasks, queue, seen, free, go, kind):
    """After a kill or SystemExit the message comes back or the main process retries, and no other call gets between."""
    task, call = getattr(tasks, kind), (seen.name, tasks.UNTIL_GO)[: 1 if kind == "exits" else 2]
    result = task.apply_async(call, queue=queue)
    pid = seen.wait("start")[0]["pid"]
    if kind != "exits":
        os.kill(pid, signal.SIGKILL)
    duplicates_until(lambda: seen.count("start") == 2, lambda: task.apply_async(call, queue=queue))
    go()
    assert result.get(timeout=60) == seen.name
    assert [event["id"] for event in seen.events("start")] == [result.id] * 2
    free(f"{kind}:{seen.name}")


@pytest.mark.parametrize("kind", ["brief_late", "brief_late_running"])
def test_killed_worker(tasks, start_worker, own_queue, take_over, seen, started, free, go, kind):
    """When a whole worker is killed, its lock is free after the lease, and the redelivered message runs."""
    with start_worker("prefork", own_queue) as first:
        result = started(getattr(tasks, kind), own_queue)
        first.kill()
    go()
    free(f"{kind}:{seen.name}")
    take_over()
    assert result.get(timeout=60) == seen.name
    assert (seen.count("end"), seen.overlap()) == (1, [])


def test_killed_before_the_next_step_of_a_chain_was_sent(tasks, start_worker, own_queue, take_over, seen):
    """Killed between a body and the chain's next step: with acks_late the body runs again, and the chain goes on."""
    chain = tasks.brief_late.si(seen.name).set(queue=own_queue) | tasks.collect.s().set(queue=own_queue)
    with start_worker("prefork", own_queue, CELERY_HOLD="1") as first:
        result = chain.apply_async()
        seen.wait("sending")
        first.kill()
    take_over()
    assert result.get(timeout=60) == seen.name
    assert seen.count("end") == 2


@pytest.mark.parametrize("kind", ["late", "late_running", "late_executing", "late_expired"])
def test_redelivered_while_it_runs(tasks, queue, worker, ignored, seen, started, go, kind):
    """A message that is redelivered while its body runs is postponed, and not run again."""
    result = started(getattr(tasks, kind), queue)
    deliver_again(tasks.app)
    logged(worker, f"[{result.id}] still runs")
    go()
    assert result.get(timeout=60) == seen.name
    ignored(result)


def test_redelivered_in_a_chain_while_it_runs(tasks, queue, worker, ignored, seen, started, held, go):
    """A redelivered message does not get the lock between the first body's end and the sending of the next step."""
    result = started(tasks.late_waiting, queue, link=tasks.collect.s().set(queue=queue))
    deliver_again(tasks.app)
    waits, postponed = lambda: held(f"late_waiting:{seen.name}").waiters, f"[{result.id}] still runs"
    poll(lambda: waits() or postponed in worker.log(10_000_000), timeout=60, what="the second delivery")
    go()
    assert result.get(timeout=60) == seen.name
    ignored(result)


def test_redelivered_while_it_runs_for_long(tasks, queue, worker, started, go):
    """A message that is redelivered while its body runs is tried again when the lease would end, not each second."""
    result = started(tasks.less_late, queue)
    deliver_again(tasks.app)
    again = f"[{result.id}] still runs: tried again in "
    logged(worker, again, 2)
    first, second, *_ = re.findall(rf"{re.escape(again)}(\d+) s", worker.log(10_000_000))
    assert (first, int(second) > 10) == ("1", True)


def test_a_redelivered_copy_of_a_killed_body_runs_once(tasks, queue, worker, seen, free, go):
    """A message that was redelivered while it ran, and whose body is then killed, runs once more, by the copy."""
    result = tasks.less_late.apply_async((seen.name, tasks.UNTIL_GO), queue=queue)
    process = seen.wait("start")[0]["pid"]
    os.kill(process, signal.SIGSTOP)
    go()
    deliver_again(tasks.app)
    logged(worker, f"[{result.id}] still runs")
    os.kill(process, signal.SIGKILL)
    assert result.get(timeout=60) == seen.name
    free(f"less_late:{seen.name}")
    assert seen.count("end") == 1


@pytest.mark.skipif(celery.VERSION < (5, 5), reason="Celery 5.4 does not deliver such a message again")
@pytest.mark.parametrize("cancel", [True, False])
def test_connections_to_the_broker_are_lost(tasks, start_worker, own_queue, seen, started, free, go, cancel):
    """When the broker connection is lost, one run of the task completes and no runs overlap."""
    conf = json.dumps({"worker_cancel_long_running_tasks_on_connection_loss": cancel})
    with (
        RedisServer() as broker,
        tasks.app.connection_for_write(broker.url) as connection,
        start_worker("prefork", own_queue, CELERY_BROKER=broker.url, CELERY_CONF=conf) as worker,
    ):
        result = started(tasks.less_late, own_queue, connection=connection)
        with broker.client() as client:
            for kind in ("normal", "pubsub"):
                client.client_kill_filter(_type=kind, skipme=True)
        if cancel:
            seen.wait("start", 2, timeout=120)  # when the lease has ended
        else:
            logged(worker, "still runs")
        go()
        assert result.get(timeout=60) == seen.name
        free(f"less_late:{seen.name}")
    assert seen.count("start") == 1 + cancel
    assert seen.count("end") == 1
    assert seen.overlap() == []


def test_control_a_plain_task_runs_twice_at_once(tasks, queue, seen, started, go):
    """Control: without the decorator the redelivered message runs beside the first."""
    started(tasks.late_plain, queue)
    deliver_again(tasks.app)
    seen.wait("start", 2)
    go()
    seen.wait("end", 2)
    assert seen.overlap()


def test_reject_with_requeue_keeps_the_lock_for_the_owner(tasks, queue, seen, free):
    result = tasks.requeues.apply_async((seen.name,), queue=queue)
    assert result.get(timeout=60) == seen.name
    assert seen.count("start") == 2
    free(f"requeues:{seen.name}")


def test_eta_longer_than_the_ttl(tasks, queue, seen, free, go):
    """The record of a call with an ETA lasts beyond the ETA, so that later submits are duplicates."""
    first = tasks.brief.apply_async((seen.name, tasks.UNTIL_GO), queue=queue, countdown=5)  # more than its ttl
    duplicates_until(lambda: seen.count("start"), lambda: tasks.brief.apply_async((seen.name,), queue=queue))
    go()
    assert first.get(timeout=60) == seen.name
    assert seen.count("start") == 1
    free(f"brief:{seen.name}")


def test_copies_of_a_message_that_waits_for_its_eta(tasks, queue, worker, ignored, seen, go):
    """Of the copies that a Redis broker delivers until the ETA one runs, and the others are postponed and discarded."""
    result = tasks.late.apply_async((seen.name, tasks.UNTIL_GO), queue=queue, countdown=3)
    for copies in (1, 2, 3):
        logged(worker, f"[{result.id}] received", copies)
        deliver_again(tasks.app)
    go()  # not before: on a busy machine the ETA may have passed
    assert result.get(timeout=60) == seen.name
    ignored(result, times=2)


def test_backlog(tasks, start_worker, own_queue, seen):
    results = [tasks.executed.apply_async((seen.name,), queue=own_queue) for _ in range(500)]
    assert [result.duplicate for result in results].count(False) == 1
    with start_worker("solo", own_queue):
        assert results[-1].get(timeout=60) == seen.name
    assert seen.count("start") == 1


def test_a_redelivered_copy_of_a_failed_body_does_not_run(tasks, queue, worker, ignored, seen, free):
    """A message that was redelivered while it ran, and whose body is killed and failed, does not run again."""
    result = tasks.late_once.apply_async((seen.name, tasks.UNTIL_GO), queue=queue)
    process = seen.wait("start")[0]["pid"]
    deliver_again(tasks.app)
    logged(worker, f"[{result.id}] still runs")
    os.kill(process, signal.SIGKILL)
    assert isinstance(result.get(timeout=60, propagate=False), WorkerLostError)
    free(f"late_once:{seen.name}")
    ignored(result)
    assert result.state == "FAILURE"
