"""Tasks in processes of ``manage.py db_worker``."""

import os
import signal
from contextlib import ExitStack

import pytest

from django_redlock import locks
from django_redlock.tasks import is_duplicate
from django_redlock.tasks import task as task_module
from tests.support.service import poll


def finished(*results):
    """Wait until the calls have ended."""
    for result in results:
        poll(lambda each=result: each.refresh() or each.is_finished, timeout=60, what=f"the end of {result}")


def test_duplicates_of_a_queued_and_of_a_running_call(start_worker, app, unique, held, events):
    """One body runs, with the record of its call. Then the lock is free."""
    first = app.until.enqueue(unique, waits=True)
    assert is_duplicate(app.until.enqueue(unique))
    with start_worker():
        events("start", 1)
        assert held(f"until:{unique}") == ("running", first.id)
        second = app.until.enqueue(unique)
        assert (second.id, second.status, is_duplicate(second)) == (first.id, "RUNNING", True)
        events.go()
        finished(first, second)
        assert (first.return_value, second.return_value) == (unique, unique)
        assert held(f"until:{unique}") is None
        third = app.until.enqueue(unique)
        finished(third)
    assert len(events("end")) == 2


def test_killed_worker(start_worker, app, unique, held, events):
    """The lease is renewed while the body runs, and ends after the process was killed (-9)."""
    first = app.short.enqueue(unique, waits=True)
    left = []

    def renewed():
        left.append(locks["default"].describe(f"short:{unique}").remaining)
        return left[-1] > min(left)

    with start_worker() as worker:
        [pid] = events("start", 1)
        poll(renewed, timeout=60, what="a renewal")
        os.kill(pid, signal.SIGKILL)
        worker.process.wait()
    assert app.short.enqueue(unique).id == first.id
    poll(lambda: held(f"short:{unique}") is None, timeout=60, what="the end of the lease")
    second = app.short.enqueue(unique)
    assert not is_duplicate(second)
    with start_worker():
        finished(second)
    first.refresh()
    assert first.status == "RUNNING"  # django-tasks-db never runs it again


@pytest.mark.parametrize("task", ["executing", "waiting"])
def test_two_workers(start_worker, app, unique, events, task):
    """while_executing: the second call is sent, and a worker skips it, or waits for the first."""
    results = [getattr(app, task).enqueue(unique, waits=True) for _ in range(2)]
    assert not any(map(is_duplicate, results))
    with start_worker(), start_worker():
        events("start", 1)
        if task == "executing":
            poll(lambda: any(each.refresh() or each.is_finished for each in results), timeout=60, what="a duplicate")
        events.go()
        finished(*results)
    skipped = [each for each in results if is_duplicate(each.return_value)]
    assert (len(skipped), len(events("end"))) == ((1, 1) if task == "executing" else (0, 2))
    if skipped:
        [other] = [each for each in results if each not in skipped]
        assert skipped[0].return_value["holder"] == other.id


def test_failing_task(start_worker, app, unique, held):
    with start_worker():
        first = app.failing.enqueue(unique)
        finished(first)
    assert (first.status, first.errors[0].exception_class) == ("FAILED", ValueError)
    assert held(f'tests.tasks.app.failing(name="{unique}")') is None


@pytest.fixture
def rename_late(monkeypatch):
    """`rename_late(until)`: `enqueue()` calls this function before its record gets the id of the call."""

    def patch(until):
        def late(call, task_id):
            until(call)
            return (yield from rename(call, task_id))

        monkeypatch.setattr(task_module, "rename", late)

    rename = task_module.rename
    return patch


@pytest.mark.parametrize("renamed", [True, False], ids=["before", "later"])
def test_queued_call_beside_a_task_with_the_same_key(start_worker, app, unique, held, events, rename_late, renamed):
    """A call that another mode's task refuses leaves no record, also if its record has no id yet."""

    def until_refused(task_id):
        workers.enter_context(start_worker())
        events("start", 1)  # of the other task
        workers.enter_context(start_worker())
        poll(lambda: app.until.get_result(task_id).is_finished, timeout=60, what="the refused call")

    if not renamed:
        rename_late(lambda call: until_refused(call.task_id))
    other = app.beside_until.using(priority=50).enqueue(unique, waits=True)  # a worker takes it first
    with ExitStack() as workers:
        queued = app.until.enqueue(unique)
        if renamed:
            until_refused(queued.id)
        queued.refresh()
        assert is_duplicate(queued.return_value)
        assert held(f"until:{unique}") == ("running", other.id)
        events.go()
        finished(other)
    assert held(f"until:{unique}") is None


def test_worker_is_faster_than_enqueue(start_worker, app, unique, held, events, rename_late):
    """A worker may start a call before its record has the id of the call: the record is taken over."""
    rename_late(lambda _call: events("end", 1))
    with start_worker():
        first = app.until.enqueue(unique)
        finished(first)
    assert (first.return_value, held(f"until:{unique}")) == (unique, None)
