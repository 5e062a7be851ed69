"""Tasks in a canvas are always sent. A duplicate among them is skipped in the worker, so no canvas waits forever."""

import pytest
from celery import chain, chord, group

from django_redlock.celery import is_duplicate


@pytest.fixture
def holder(tasks, queue, started, go):
    """The call that all members below are duplicates of, for the time of the test."""
    return started(tasks.executed, queue)


def test_chain(tasks, queue, seen, holder):
    """A duplicate in a chain returns the marker, and the next step runs."""
    steps = chain(
        tasks.any_value.si("first").set(queue=queue),
        tasks.executed.si(seen.name).set(queue=queue),
        tasks.collect.s(name="last").set(queue=queue),
    )
    assert is_duplicate(steps.apply_async().get(timeout=60))
    assert seen.count("start") == 1


def test_group(tasks, queue, seen, holder):
    results = group(tasks.executed.s(seen.name).set(queue=queue) for _ in range(3)).apply_async().get(timeout=60)
    assert [is_duplicate(result) for result in results] == [True] * 3


def test_chord(tasks, queue, seen, holder):
    """The body of a chord runs with the results of the members and the markers of duplicates."""
    header = [tasks.executed.s(seen.name).set(queue=queue), tasks.any_value.s(1).set(queue=queue)]
    duplicate, other = chord(header)(tasks.collect.s().set(queue=queue)).get(timeout=60)
    assert is_duplicate(duplicate)
    assert other == "1"


def test_group_of_equal_members(tasks, queue, seen):
    results = group(tasks.executed.s(seen.name, 0.3).set(queue=queue) for _ in range(4)).apply_async().get(timeout=60)
    assert len(results) == 4
    assert not all(is_duplicate(result) for result in results)
    assert seen.overlap() == []


def test_chain_of_the_same_call(tasks, queue, seen, free):
    """A step that is the same call as the previous one, which has returned, is not a duplicate."""
    steps = chain(tasks.executed.si(seen.name).set(queue=queue) for _ in range(3))
    assert steps.apply_async().get(timeout=60) == seen.name
    assert seen.count("start") == 3
    free(f"executed:{seen.name}")


def test_chord_member_that_retries(tasks, queue, seen):
    """A chord waits for a member that on_conflict="retry" postpones."""
    header = [tasks.retrying.s(seen.name, 0.5).set(queue=queue) for _ in range(2)]
    assert chord(header)(tasks.collect.s().set(queue=queue)).get(timeout=60) == [seen.name] * 2
    assert seen.overlap() == []


def test_link(tasks, queue, seen, go):
    callback = tasks.running.si(f"{seen.name}").set(queue=queue)
    call = (seen.name, tasks.UNTIL_GO)
    results = [tasks.executed.apply_async(call, queue=queue, link=callback) for _ in range(5)]
    assert [result.duplicate for result in results] == [False, True, True, True, True]
    go()
    seen.wait("end", 2)


@pytest.mark.parametrize("to", ["long", "running", "gives_way"])
def test_replace(tasks, queue, seen, free, to):
    """Task.replace() with a protected task runs it under the same id, and both locks are free in the end."""
    result = tasks.gives_way.apply_async((seen.name, to, 0.3), queue=queue)
    assert result.get(timeout=60) == seen.name
    assert [event["id"] for event in seen.events("start")] == [result.id] * 2
    free(f"gives_way:{seen.name}")
    free(f"{to}:{seen.name}")


def test_replace_by_a_group(tasks, queue, seen, free):
    """Task.replace() with a group: an equal call in the group is not a duplicate of the replaced body."""
    result = tasks.gives_way_to_many.apply_async((seen.name, 1, 0.3), queue=queue)
    assert result.get(timeout=60) == [seen.name]
    assert seen.count("start") == 2
    free(f"gives_way_to_many:{seen.name}")
