"""A retry is granted to the owner of the record, and no other call gets in between."""

import pytest

from django_redlock.celery import is_duplicate
from django_redlock.errors import LockNotAcquired
from tests.celery.conftest import logged, run_here
from tests.support.service import poll


@pytest.mark.parametrize("kind", ["retries", "autoretries"])
def test_no_other_submit_is_granted_between_retries(tasks, queue, seen, free, kind):
    task = getattr(tasks, kind)
    call = {"name": seen.name, "seconds": 0.3}
    result = task.apply_async((), call, queue=queue)
    others = []

    def last_run():
        duplicate = task.apply_async((), call, queue=queue).duplicate
        others.append(duplicate or seen.count("end") >= 3)  # it may have come after the last end
        return seen.count("start") >= 3

    poll(last_run, timeout=20, what="three runs")
    assert result.get(timeout=60) == seen.name
    assert {event["id"] for event in seen.events("start")[:3]} == {result.id}
    assert all(others)
    free(f"{kind}:{seen.name}")


def test_record_lives_until_the_retry(tasks, queue, seen, held):
    """Between two runs the record is queued and has the ttl of a queued one."""
    result = tasks.retries.apply_async((seen.name,), {"countdown": 300, "failures": 1}, queue=queue)
    seen.wait("end")
    name = f"retries:{seen.name}"
    poll(lambda: held(name).owner.extra["state"] == "queued", timeout=20, what="queued again")
    assert held(name).remaining > 80_000
    result.revoke()


@pytest.mark.parametrize(("kind", "countdown", "failures"), [("retries", 0, 5), ("retries_running", 0.2, 2)])
def test_retries_of_the_owner(tasks, queue, seen, free, kind, countdown, failures):
    """Each run gets the lock, also if the retry arrives before the first run has ended, and with while_executing."""
    call = {"countdown": countdown, "failures": failures}
    result = getattr(tasks, kind).apply_async((seen.name,), call, queue=queue)
    assert result.get(timeout=60) == seen.name
    assert (seen.count("start"), seen.overlap()) == (failures + 1, [])
    free(f"{kind}:{seen.name}")


def test_retry_with_other_arguments(tasks, queue, records, seen, free, held):
    """A retry with other arguments is another call: its lock is acquired, and the first one is free."""
    other = f"{seen.name}-other"
    result = tasks.wanders.apply_async((seen.name, other), queue=queue)
    seen.wait("start")
    free(f"wanders:{seen.name}")
    assert held(f"wanders:{other}").owner.extra["task_id"] == result.id
    assert tasks.wanders.apply_async((other, other), queue=queue).duplicate
    (records / f"{other}.go").touch()
    assert result.get(timeout=60) == other
    free(f"wanders:{other}")


def test_free_after_the_last_retry(tasks, queue, seen, free):
    result = tasks.gives_up.apply_async((seen.name,), queue=queue)
    with pytest.raises(ValueError, match=seen.name):
        result.get(timeout=60)
    free(f"gives_up:{seen.name}")
    assert seen.count("start") == 2


def test_autoretry_for_lock_not_acquired(tasks, queue, seen, started, free, go):
    first = started(tasks.patient_running, queue)
    second = tasks.patient_running.apply_async((seen.name,), queue=queue)
    poll(lambda: second.state == "RETRY", timeout=60, what="a retry")
    go()
    assert [first.get(timeout=60), second.get(timeout=60)] == [seen.name] * 2
    retried = [event for event in seen.events("start") if event["retries"]]
    assert {event["id"] for event in retried} == {second.id}
    assert seen.overlap() == []
    free(f"patient_running:{seen.name}")


def test_autoretry_for_lock_not_acquired_ends(tasks, queue, seen, started, go):
    started(tasks.impatient, queue)
    with pytest.raises(LockNotAcquired):
        tasks.impatient.apply_async((seen.name,), queue=queue).get(timeout=60)
    assert seen.count("start") == 1


def test_retry_outlives_the_worker_that_sent_it(tasks, start_worker, own_queue, take_over, seen, held, free):
    """A retry runs even if its worker dies between retry() and the end of the body."""
    name = f"retries_on:{seen.name}"
    with start_worker("prefork", own_queue) as first:
        result = tasks.retries_on.apply_async((seen.name,), {"countdown": 5}, queue=own_queue)
        seen.wait("retried")
        # kombu loses a message if the receiver dies between BRPOP and the entry in its hash.
        logged(first, f"[{result.id}] received", 2)
        first.kill()
    poll(lambda: held(name).owner.extra["state"] == "queued", timeout=20, what="the end of its lease")
    assert tasks.retries_on.apply_async((seen.name,), queue=own_queue).duplicate
    take_over()
    seen.wait("end")
    free(name)
    assert {event["id"] for event in seen.events("start")} == {result.id}


def test_retry_that_an_earlier_version_has_sent(tasks, seen):
    """The mark of a body that has begun, which an earlier version sent along with a retry, doesn't pass the lock."""
    task = tasks.executed
    task.apply_async((seen.name,), queue="nobody")
    run_here(task, seen.name, retries=1, redlock_entered=True)
    assert is_duplicate(task.AsyncResult(seen.name).result)
    assert seen.count("start") == 0
