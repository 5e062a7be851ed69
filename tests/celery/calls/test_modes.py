"""The calls that each mode allows, on each pool."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.celery import is_duplicate, single_instance_task
from tests.support.locks import memory_entry
from tests.support.service import poll


def burst(task, queue, name, number=50, seconds=0.3):
    """Submit the same call many times, from four threads."""
    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(task.apply_async, (name, seconds), queue=queue) for _ in range(number)]
        return [each.result() for each in sent]


def finish(results):
    """Return the results of tasks. A task that appears several times is waited for once."""
    values = {result.id: result.get(timeout=60) for result in {result.id: result for result in results}.values()}
    return [values[result.id] for result in results]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_until_executed_sends_and_runs_one(tasks, workers, seen, free, go, pool):
    results = burst(tasks.executed, workers(pool), seen.name, seconds=tasks.UNTIL_GO)
    go()
    assert finish(results) == [seen.name] * 50
    assert [result.duplicate for result in results].count(False) == 1
    assert len({result.id for result in results}) == 1
    assert seen.count("start") == 1
    free(f"executed:{seen.name}")


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_while_executing_never_runs_two(tasks, workers, seen, free, pool):
    """while_executing: all submits are sent, runs don't overlap, and skipped calls return the marker."""
    results = finish(burst(tasks.running, workers(pool), seen.name, 12))
    assert seen.overlap() == []
    assert 1 <= seen.count("start") == sum(not is_duplicate(result) for result in results) < 12
    free(f"running:{seen.name}")


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_control_without_the_decorator_they_overlap(tasks, workers, seen, go, pool):
    results = burst(tasks.executed_plain, workers(pool), seen.name, 8, tasks.UNTIL_GO)
    seen.wait("start", 2)
    go()
    finish(results)
    assert seen.count("start") == 8
    assert seen.overlap()


def test_until_and_while_executing_runs_one_more(tasks, queue, seen, started, free, go):
    """until_and_while_executing: submits during the body lead to exactly one more run, after it."""
    first = started(tasks.and_while, queue)
    results = burst(tasks.and_while, queue, seen.name, 20)
    go()
    assert [result.duplicate for result in results].count(False) == 1
    finish([first, *results])
    assert seen.count("start") == 2
    assert seen.overlap() == []
    free(f"and_while:{seen.name}")


def test_until_executing_is_free_when_the_body_starts(tasks, start_worker, own_queue, seen, free, go):
    """A queued call makes others duplicates. When its body starts, the next may be sent, and may overlap."""
    call = (seen.name, tasks.UNTIL_GO)
    queued = tasks.executing.apply_async(call, queue=own_queue)
    assert tasks.executing.apply_async(call, queue=own_queue).id == queued.id
    with start_worker("prefork", own_queue):
        seen.wait("start")
        again = tasks.executing.apply_async(call, queue=own_queue)
        assert not again.duplicate
        go()
        finish([queued, again])
        assert seen.count("start") == 2
        free(f"executing:{seen.name}")


def test_until_expired_runs_once_a_period(tasks, queue, seen, free):
    begun = time.monotonic()
    finish([tasks.expired.apply_async((seen.name,), queue=queue)])
    second = tasks.expired.apply_async((seen.name,), queue=queue)
    assert second.duplicate or time.monotonic() - begun > 5  # the period may be over on a busy machine
    free(f"expired:{seen.name}")
    finish([tasks.expired.apply_async((seen.name,), queue=queue)])
    assert seen.count("start") == 2 + (not second.duplicate)


def test_limit_lets_so_many_run(tasks, queue, seen, records, go):
    from tests.support.overlap import overlaps, read

    results = burst(tasks.three, queue, seen.name, 12, tasks.UNTIL_GO)
    poll(lambda: sum(result.ready() for result in results) == 9, timeout=60, what="nine duplicates")
    assert len(seen.wait("start", 3)) == 3
    go()
    finish(results)
    beliefs = read(records / f"{seen.name}.beliefs")
    assert overlaps(beliefs, 3) == []
    assert overlaps(beliefs, 2)


def test_body_longer_than_the_lease_is_renewed(tasks, queue, seen, started, go):
    first = started(tasks.renewed, queue)
    begun = time.monotonic()
    poll(lambda: time.monotonic() > begun + 5.2, timeout=20, what="more than its ttl")
    others = [tasks.renewed.apply_async((seen.name, 0), queue=queue) for _ in range(3)]
    finish(others)
    go()
    finish([first])
    assert seen.overlap() == []
    assert seen.count("start") == 1


def test_gevent(tasks, start_worker, own_queue, seen, free, records, go):
    """On gevent one of many calls runs, and a body that yields is renewed."""
    pytest.importorskip("gevent")
    with start_worker("gevent", own_queue):
        results = burst(tasks.executed, own_queue, seen.name, 20, tasks.UNTIL_GO)
        go()
        assert finish(results) == [seen.name] * 20
        (records / f"{seen.name}.go").unlink()
        first = tasks.renewed.apply_async((seen.name, tasks.UNTIL_GO), queue=own_queue)
        seen.wait("start", 2)
        assert is_duplicate(tasks.renewed.apply_async((seen.name, 0), queue=own_queue, countdown=5.3).get(timeout=60))
        go()
        assert finish([first]) == [seen.name]
        free(f"renewed:{seen.name}")


def test_the_record_shows_task_state_and_process(tasks, queue, seen, held, go):
    waiting = tasks.executed.apply_async((f"{seen.name}-queued",), queue="nobody")
    queued = held(f"executed:{seen.name}-queued")
    assert (queued.kind, queued.owner.label) == ("task", tasks.executed.name)
    assert queued.owner.extra == {"state": "queued", "task_id": waiting.id}
    result = tasks.executed.apply_async((seen.name, tasks.UNTIL_GO), queue=queue)
    pid = seen.wait("start")[0]["pid"]
    running = held(f"executed:{seen.name}")
    assert running.owner.extra == {"state": "running", "task_id": result.id}
    assert running.owner.pid == pid
    assert running.remaining <= 10 < queued.remaining
    go()
    finish([result])


@pytest.mark.parametrize("store", ["redis", "locmem"])
def test_a_second_call_with_the_same_id(tasks, seen, settings, store):
    if store == "locmem":
        settings.REDLOCK = {"default": memory_entry(seen.name)}

    @tasks.app.task(name=seen.name)
    @single_instance_task(limit=2)
    def work(): ...

    def send(task_id):
        return work.apply_async(queue="nobody", task_id=task_id).duplicate

    assert [send(task_id) for task_id in ("a", "a", "a", "b", "c")] == [False, True, True, False, True]
