"""`capture_tasks` and its assertions, for tests of deduplicated tasks."""

import pytest
from celery import Celery, Task

from django_redlock.celery import single_instance_task
from django_redlock.errors import LockNotAcquired, LockUnavailable
from django_redlock.testing import assert_enqueued_once, assert_not_enqueued, capture_tasks

app = Celery("captured", broker="amqp://nowhere.invalid//", set_as_current=False)
done: list[int] = []


@app.task
@single_instance_task(key="settle:{order}")
def settle(order, note=""):
    done.append(order)
    if note == "next":
        settle.delay(order + 1)


@app.task
@single_instance_task(key="patient:{order}", on_conflict="wait")
def patient(order): ...


@app.task
@single_instance_task
def total(numbers):
    return sum(numbers)


@app.task
def plain(number=0): ...


def test_enqueued_once(redlock_tasks):
    """A call counts once, however its arguments are written, and a duplicate does not count."""
    first = settle.delay(17)
    assert settle.apply_async(kwargs={"order": 17}).duplicate
    call = assert_enqueued_once(settle, order=17)
    assert (call.task_id, call.args, call.lock_name) == (first.id, (17,), "settle:17")
    assert_enqueued_once(settle)
    assert_not_enqueued(settle, 18)
    assert [(conflict.key, conflict.holder) for conflict in redlock_tasks.duplicates] == [("settle:17", first.id)]


def test_without_a_lock(redlock_tasks):
    """Calls of a task without a lock are told apart by their arguments."""
    plain.delay(2)
    assert_not_enqueued(plain, 1)
    plain.delay(1)
    assert assert_enqueued_once(plain, 1).args == (1,)
    assert [call.args for call in redlock_tasks.calls(plain)] == [(2,), (1,)]


def test_task_with_a_method_enqueue(redlock_tasks):
    """Only tasks of ``django.tasks`` are looked up in their backend."""

    class Base(Task):
        def enqueue(self): ...

    assert_not_enqueued(app.task(base=Base, name="own-base")(plain.run))


def test_serializer_of_the_call(redlock_tasks):
    """A call that is sent with another serializer than the task's is found by its arguments, and can be run."""
    call = total.apply_async(({1, 2},), serializer="pickle")
    assert assert_enqueued_once(total, {2, 1}).task_id == call.id
    assert_not_enqueued(total, {1, 3})
    assert total.apply_async(({2, 1},), serializer="pickle").duplicate
    total.apply_async(([1],))
    assert assert_enqueued_once(total, {2, 1}).task_id == call.id  # the other call's serializer can't send a set
    assert [result.get() for result in redlock_tasks.run_all()] == [3, 1]
    with pytest.raises(TypeError, match="total"):
        assert_not_enqueued(total, 1, 2)


def test_failures_say_what_was_enqueued(redlock_tasks):
    plain.delay()
    with pytest.raises(AssertionError, match=r"settle was enqueued 0 times, not 1 .*refused: 0; enqueued: .*plain\(\)"):
        assert_enqueued_once(settle, 17)
    settle.delay(17)
    settle.delay(18)
    with pytest.raises(AssertionError, match="enqueued 2 times, not 1"):
        assert_enqueued_once(settle)
    with pytest.raises(AssertionError, match="enqueued 1 times, not 0"):
        assert_not_enqueued(settle, 18)


def test_run_all(redlock_tasks):
    """run_all() runs bodies with their locks, and the tasks that they enqueue."""
    done.clear()
    settle.delay(17, "next")
    assert [result.get() for result in redlock_tasks.run_all()] == [None, None]
    assert (done, redlock_tasks.enqueued) == ([17, 18], [])
    assert not settle.delay(17).duplicate


def test_time_passes_and_the_store_breaks(redlock, redlock_tasks):
    """Records in memory follow the test's clock and its failures."""
    settle.delay(17)
    redlock.advance(86_401)
    assert not settle.delay(17).duplicate
    with redlock.broken(), pytest.raises(LockUnavailable):
        settle.delay(18)
    assert_not_enqueued(settle, 18)


def test_planned_failures(redlock, redlock_tasks):
    """A planned refusal refuses the submit of a call, a planned loss its body."""
    redlock.lose_next()
    redlock.refuse_next("settle:17")
    assert settle.delay(17).duplicate
    redlock.break_next()
    with pytest.raises(LockUnavailable):
        settle.delay(17)
    assert not settle.delay(17).duplicate
    assert redlock.planned == [("*", "lost")]
    assert [result.get() for result in redlock_tasks.run_all()] == [None]
    assert redlock.planned == []


def test_planned_refusal_of_a_call_that_waits(redlock, redlock_tasks):
    """A planned refusal counts as if the whole ``conflict_timeout`` had passed."""
    redlock.refuse_next("patient:17")
    with pytest.raises(LockNotAcquired):
        patient.delay(17)
    assert_not_enqueued(patient)


def test_tasks_of_other_services(redlock_tasks):
    """Calls by name of tasks that are not registered here are captured, with ids, but can't be run."""
    sent = app.send_task("billing.charge", [17], {"note": "first"})
    app.signature("billing.charge", [18]).delay()
    first, second = redlock_tasks.enqueued
    assert (first.task.name, first.args, first.kwargs) == ("billing.charge", (17,), {"note": "first"})
    assert (second.task.name, second.args, second.lock_name) == ("billing.charge", (18,), "")
    assert first.task_id == sent.id != second.task_id
    assert_not_enqueued(settle)
    with pytest.raises(AssertionError, match=r"enqueued: billing.charge\(17,\)"):
        assert_enqueued_once(settle)
    with pytest.raises(RuntimeError, match=r"task billing\.charge is not registered in this app"):
        redlock_tasks.run_all()


def test_outside():
    """An assertion outside `capture_tasks` raises an error, because nothing was captured."""
    with capture_tasks():
        pass
    with pytest.raises(RuntimeError, match="capture_tasks"):
        assert_not_enqueued(settle, 17)
