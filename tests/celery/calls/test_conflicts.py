"""The actions of ``on_conflict`` for a duplicate."""

import logging
import os

import pytest
import redis

from django_redlock.celery import is_duplicate, single_instance_task, task_duplicate
from django_redlock.errors import LockNotAcquired


@pytest.fixture
def told():
    """The conflicts that the signal has reported."""
    conflicts = []

    def hear(conflict, **_):
        conflicts.append(conflict)

    task_duplicate.connect(hear)
    yield conflicts
    task_duplicate.disconnect(hear)


def test_a_callable_that_raises_in_the_worker(tasks, queue, seen, started, free, go):
    """The task fails with the error of its on_conflict callable, and its queued record is removed."""
    name = f"undecided:{seen.name}"
    first = started(tasks.undecided, queue)
    with pytest.raises(ArithmeticError, match=name):
        tasks.undecided.apply_async((seen.name,), queue=queue).get(timeout=60)
    go()
    first.get(timeout=60)
    free(name)


def test_skip_is_logged_and_signalled(tasks, seen, told, caplog):
    """A skipped duplicate is logged with both ids and the remaining time, and the signal is sent."""
    first = tasks.executed.apply_async((seen.name,), queue="nobody")
    with caplog.at_level(logging.INFO, "django_redlock"):
        second = tasks.executed.apply_async((seen.name,), queue="nobody", task_id="second")
    assert (second.duplicate, second.id) == (True, first.id)
    assert is_duplicate(second)
    [conflict] = told
    assert (conflict.task, conflict.task_id, conflict.holder) == (tasks.executed.name, "second", first.id)
    assert (conflict.where, conflict.state) == ("submit", "queued")
    assert 86_000 < conflict.remaining <= 86_400
    assert "second" in caplog.text
    assert first.id in caplog.text


@pytest.mark.parametrize("owner", ['["x"]', "17", '{"x":' + "[" * 5000, '{"task_id":{"a":[NaN]}}', "x" * 3_000_000, ""])
def test_a_record_of_another_program(tasks, seen, owner):
    """A record with an unreadable owner makes the task a duplicate all the same."""
    with redis.Redis.from_url(os.environ["CELERY_LOCKS"]) as client:
        client.hset(f"redlock:{{executed:{seen.name}}}", "x", f"running t s {2**52} - 0 {owner}")
    result = tasks.executed.apply_async((seen.name,), queue="nobody")
    assert result.duplicate


def test_get_of_a_duplicate_whose_result_is_ignored(tasks, seen):

    @tasks.app.task(name=f"ignored-{seen.name}", ignore_result=True)
    @single_instance_task
    def ignored(): ...

    for task, args, options in ((ignored, (), {}), (tasks.executed, (seen.name,), {"ignore_result": True})):
        results = [task.apply_async(args, queue="nobody", **options) for _ in range(2)]
        assert [result.duplicate for result in results] == [False, True]
        assert [result.get(timeout=60) for result in results] == [None, None]


def test_raise_at_submit(tasks, seen):
    first = tasks.raising.apply_async((seen.name,), queue="nobody")
    with pytest.raises(LockNotAcquired, match=first.id) as caught:
        tasks.raising.apply_async((seen.name,), queue="nobody")
    assert caught.value.name == f"raising:{seen.name}"
    assert caught.value.holder == first.id


def test_raise_at_start(tasks, queue, seen, started, go):
    first = started(tasks.starting_raises, queue)
    with pytest.raises(LockNotAcquired):
        tasks.starting_raises.apply_async((seen.name,), queue=queue).get(timeout=60)
    go()
    assert first.get(timeout=60) == seen.name


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_callable_decides_to_wait_at_start(tasks, workers, seen, pool):
    """A callable that returns "wait" in the worker makes the call wait, and it runs when the holder has ended."""
    queue = workers(pool)
    first = tasks.told_to_wait.apply_async((seen.name,), queue=queue)
    seen.wait("start")
    second = tasks.told_to_wait.apply_async((seen.name,), queue=queue)
    assert [each.get(timeout=60) for each in (first, second)] == [seen.name] * 2
    assert seen.overlap() == []


def test_a_callable_decides_to_log_at_start(tasks, workers, queue, seen, go):
    tasks.told_to_log.apply_async((seen.name,), queue=queue)
    seen.wait("start")
    second = tasks.told_to_log.apply_async((seen.name,), queue=queue)
    assert is_duplicate(second.get(timeout=60))
    lines = [line for line in workers.running["prefork"].log(100_000).splitlines() if f"[{second.id}] is a dup" in line]
    assert ["WARNING/" in line for line in lines] == [True]


@pytest.mark.parametrize("kind", ["waiting", "retrying"])
def test_wait_or_retry_at_start(tasks, queue, seen, kind):
    """on_conflict="wait" and "retry" run the duplicate when the holder has ended, and use up none of its retries."""
    results = [getattr(tasks, kind).apply_async((seen.name, 0.4), queue=queue) for _ in range(3)]
    assert [result.get(timeout=60) for result in results] == [seen.name] * 3
    assert seen.overlap() == []
    assert {event["retries"] for event in seen.events("start")} == {0}


def test_replace_runs_the_last_queued_call(tasks, start_worker, own_queue, seen, free):
    results = [tasks.replacing.apply_async((seen.name, 0.5), queue=own_queue) for _ in range(3)]
    assert not any(result.duplicate for result in results)
    with start_worker("prefork", own_queue):
        assert results[-1].get(timeout=60) == seen.name
        assert all(is_duplicate(result.get(timeout=60)) for result in results[:-1])
        assert {event["id"] for event in seen.events("start")} == {results[-1].id}
        free(f"replacing:{seen.name}")


def test_replace_never_touches_a_running_one(tasks, queue, seen, started, go):
    first = started(tasks.replacing, queue)
    second = tasks.replacing.apply_async((seen.name,), queue=queue)
    assert (second.duplicate, second.id) == (True, first.id)
    go()
    assert first.get(timeout=60) == seen.name


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"mode": "until"}, "mode must be one of"),
        ({"mode": []}, r"mode must be one of .*, not \[\]"),
        ({"on_conflict": "replce"}, "on_conflict must be one of skip, log, raise, wait, replace, retry, .*'replce'"),
        ({"mode": "while_executing", "on_conflict": "replace"}, "does not support"),
        ({"mode": "until_and_while_executing", "on_conflict": ("skip", "skip")}, "would lose it"),
        ({"on_conflict": ("retry", "skip")}, "at submit must be one of"),
        ({"on_conflict": ("skip", "replace")}, "at start must be one of"),
        ({"on_conflict": ("skip",)}, "a pair"),
        ({"on_conflict": "replace", "limit": 2}, "needs limit=1"),
        ({"mode": "until_expired", "on_conflict": "replace"}, "does not support .*'replace': .* within the period"),
        ({"mode": "until_expired", "on_conflict": ("replace", "skip")}, "does not support .*'replace'"),
        ({"limit": 0}, "limit must be"),
        ({"ttl": 0}, "ttl must be a positive"),
        ({"queue_ttl": -1}, "queue_ttl must be a positive"),
        ({"on_store_error": "skip"}, "on_store_error"),
        ({"key": "a:{x"}, r"the lock name 'a:\{x' of .*function\(\): expected '}' before end of string"),
        ({"unique_on": ["nothing"]}, "no argument 'nothing'"),
        ({"key": "{a}", "unique_on": "a"}, "not both"),
        ({"conflict_retries": 0}, "conflict_retries"),
        ({"conflict_retries": "3"}, "conflict_retries must be at least 1 or None, not '3'"),
        ({"unique_on": 5}, "unique_on must be the name of an argument, or a list of names, not "),
        ({"unique_on": ["a", 5]}, "unique_on must be the name of an argument, or a list of names, not "),
        ({"key": "{nothing}"}, r"the lock name '\{nothing\}' of .* has no argument 'nothing'"),
        ({"ky": "x"}, r"single_instance_task\(\) has no option 'ky'; use key \(options: mode, key, "),
    ],
)
def test_invalid_options_are_refused_at_declaration(options, what):
    def function(a): ...

    with pytest.raises((ValueError, TypeError), match=what):
        single_instance_task(**options)(function)


def test_above_the_task_is_a_clear_error(tasks):
    from celery import shared_task

    def function(): ...

    for task in (tasks.app.task(function), shared_task(function), tasks.executed):
        with pytest.raises(TypeError, match="must stand below"):
            single_instance_task(task)
