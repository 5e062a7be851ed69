"""``enqueue()``: what a duplicate returns, and which record stays."""

import asyncio
from datetime import timedelta

import pytest
from celery import Celery
from django.test import override_settings
from django.utils import timezone

from django_redlock import celery, locks
from django_redlock.errors import LockNotAcquired, LockUnavailable
from django_redlock.signals import lock_refused
from django_redlock.single_instance.records import submit
from django_redlock.tasks import is_duplicate, task_duplicate


@pytest.fixture
def told():
    """The conflicts that the signal reports."""
    conflicts = []

    def receive(conflict, **_):
        conflicts.append(conflict)

    task_duplicate.connect(receive)
    yield conflicts
    task_duplicate.disconnect(receive)


def test_duplicate_of_a_queued_call(database, app, unique, held, told):
    """Nothing is sent. The result names the first call, and can be refreshed."""
    first, second = app.until.enqueue(unique), app.until.enqueue(name=unique, waits=True)
    assert (is_duplicate(first), is_duplicate(second)) == (False, True)
    assert (second.id, second.status, second.duplicate) == (first.id, "READY", True)
    second.refresh()
    assert second.enqueued_at == first.enqueued_at
    assert held(f"until:{unique}") == ("queued", first.id)
    assert [(each.task, each.where, each.holder, each.state) for each in told] == [
        ("tests.tasks.app.until", "submit", first.id, "queued")
    ]
    from django_tasks_db.models import DBTaskResult

    assert DBTaskResult.objects.count() == 1


def test_raise(dummy, app, unique):
    first = app.strict.enqueue(unique)
    with pytest.raises(LockNotAcquired, match=f"duplicate of {first.id}, which is queued"):
        app.strict.enqueue(unique)


async def test_aenqueue(dummy, app, unique, held):
    first = await app.until.aenqueue(unique)
    second = await app.until.aenqueue(unique)
    assert (second.id, is_duplicate(second)) == (first.id, True)
    assert held(f"until:{unique}") == ("queued", first.id)


def test_copies_share_the_lock(database, app, unique):
    """``using()`` changes priority, queue, time and backend, not the lock. A delayed call keeps its record longer."""
    later = timezone.now() + timedelta(days=9)
    task = app.until.using(priority=5, queue_name="other", run_after=later)
    first = task.enqueue(unique)
    assert (first.task.priority, first.task.queue_name) == (5, "other")
    assert 9 * 86400 < locks["default"].describe(f"until:{unique}").remaining < 11 * 86400
    assert is_duplicate(app.until.using(backend="second").enqueue(unique))
    assert app.until.get_result(first.id).id == first.id


def test_immediate(immediate, app, unique, held, events):
    """The call runs with its own record, which does not refuse its own body, and is gone at the end."""
    refused = []
    lock_refused.connect(receiver := lambda event, **_: refused.append(event.name), weak=False)
    result = app.until.enqueue(unique)
    lock_refused.disconnect(receiver)
    assert (result.return_value, len(events("end")), refused) == (unique, 1, [])
    assert held(f"until:{unique}") is None
    assert not is_duplicate(app.until.enqueue(unique))


def test_celery_task_that_meets_a_call_without_an_id(immediate, app, unique):
    """A Celery task with the same key gets no provisional id of a call that is being enqueued."""

    @Celery(unique, broker="memory://", set_as_current=False).task
    @celery.single_instance_task(key="until:{name}")
    def other(name): ...

    protection = app.until.redlock
    call = protection.new_call((unique,), {})
    protection.drive(submit(call, False, False, protection.store.algorithm))
    result = other.apply_async((unique,), task_id="own")
    protection.cancel(call)
    assert (result.duplicate, result.id) == (True, "own")


def test_context(immediate, app, unique):
    """A task that takes its context knows its id; a call from the body is a duplicate of it."""
    result = app.with_context.enqueue(unique)
    assert result.return_value == [result.id, result.id, True]


async def test_coroutine(immediate, app, unique, held):
    assert await asyncio.to_thread(lambda: app.coroutine.enqueue(unique).return_value) == unique
    assert (await app.coroutine.aenqueue(unique)).return_value == unique
    assert await app.coroutine.acall(unique) == unique
    assert held(f"async:{unique}") is None


def test_failing_body(immediate, app, unique, held):
    result = app.failing.enqueue(unique, why="x")
    assert result.errors[0].exception_class is ValueError
    assert held(f'tests.tasks.app.failing(name="{unique}")') is None


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [((), {}, "missing"), ((1,), {"x": 1}, "unexpected"), ((object(),), {}, "nsupported")],
)
def test_wrong_arguments(dummy, app, args, kwargs, problem):
    """They are refused before anything is written."""
    with pytest.raises(TypeError, match=problem):
        app.plain.enqueue(*args, **kwargs)


def test_spellings_of_a_call(dummy, app, unique):
    """The name is made of the arguments as a worker receives them."""
    first = app.plain.enqueue((unique, {1: b"x"}))
    assert first.task.redlock.name(first.args, first.kwargs) == app.plain.redlock.name([[unique, {"1": "x"}]], {"b": 2})
    assert is_duplicate(app.plain.enqueue(a=[unique, {"1": "x"}], b=2))
    assert not is_duplicate(app.plain.enqueue([unique, {"1": "x"}], b=3))


def test_direct_calls(immediate, app, unique, held):
    """``func()`` takes no lock, ``call()`` takes it as a worker does, and takes over a record that is queued."""
    assert app.until.func(unique) == unique
    assert app.until.call(unique) == unique
    assert held(f"until:{unique}") is None


def test_call_of_an_unknown_id(dummy, app, unique, held):
    app.until.enqueue(unique)
    assert app.until.call(unique) == unique
    assert held(f"until:{unique}") is None


def test_store_down(dummy, app, unique):
    """By default the caller is told. With ``on_store_error="run"`` the call is sent and run without a lock."""
    with pytest.raises(LockUnavailable):
        app.protected.enqueue(unique)
    with pytest.raises(LockUnavailable):
        app.protected.call(unique)
    result = app.unprotected.enqueue(unique)
    assert not is_duplicate(result)
    assert app.unprotected.call(unique) == unique


@pytest.mark.parametrize("kind", ["memory", "cluster"])
def test_other_stores(dummy, app, unique, settings, request, kind):
    """Records may be in memory, and on a Cluster, where all keys of a call are in one slot."""
    if kind == "cluster":
        url = request.getfixturevalue("cluster").url
        settings.REDLOCK = {**settings.REDLOCK, "cluster": {**settings.REDLOCK["default"], "LOCATION": url}}
    with override_settings(REDLOCK={"default": settings.REDLOCK[kind]}):
        first = app.until.enqueue(unique)
        assert app.until.enqueue(unique).id == first.id
        assert app.until.call(unique) == unique
        assert not is_duplicate(app.until.enqueue(unique))
