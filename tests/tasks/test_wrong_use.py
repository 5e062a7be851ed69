"""What can't be supported is refused where the decorator stands, with a message that says what to do."""

import pytest
from celery import shared_task

from django_redlock import celery, locks
from django_redlock.errors import LockNotSupported
from django_redlock.single_instance.protection import refused_tasks
from django_redlock.tasks import single_instance_task
from tests.support.locks import entry_of


def function(a): ...


@pytest.fixture
def task(app):
    """The decorator that makes tasks."""
    return app.task


RIGHT_ORDER = r"(?s)must stand above .*@single_instance_task\n    @task\n    def"


@pytest.mark.parametrize("wrong", [single_instance_task, single_instance_task(key="x"), single_instance_task()])
def test_below_the_task(task, wrong):
    with pytest.raises(TypeError, match=RIGHT_ORDER):
        task(wrong(function))


def test_decorator_of_the_other_kind_of_tasks(task):
    with pytest.raises(TypeError, match=r"django_redlock.celery.single_instance_task, below @shared_task"):
        single_instance_task(shared_task(function))
    with pytest.raises(TypeError, match=r"django_redlock.tasks.single_instance_task, above @task"):
        celery.single_instance_task(task(function))


def test_object_that_is_no_task():
    with pytest.raises(TypeError, match="takes a task or keyword arguments, not 'x'"):
        single_instance_task("x")


def test_decorated_twice(app):
    with pytest.raises(TypeError, match=r"app.until has a single_instance_task already"):
        single_instance_task(app.until)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "until_expired", "ttl": 5}, "for Celery tasks only; with django.tasks, use 'until_executed' or"),
        ({"mode": "sometimes"}, "mode must be one of"),
        ({"on_conflict": "replace"}, "'replace' is for Celery tasks only"),
        ({"mode": "while_executing", "on_conflict": "retry"}, "'retry' is for Celery tasks only"),
        ({"on_conflict": "wait"}, r"would block enqueue\(\): use a pair, such as on_conflict=\('skip', 'wait'\)"),
        ({"limit": 2}, "use limit=1 or mode='while_executing'"),
        ({"unique_on": "b"}, "there is no argument 'b'"),
        ({"ttl": 0}, "ttl"),
    ],
)
def test_unsupported_options(task, options, message):
    with pytest.raises(ValueError, match=message):
        single_instance_task(**options)(task(function))


def test_unknown_option():
    with pytest.raises(TypeError, match="conflict_retries"):
        single_instance_task(conflict_retries=3)


def test_store_without_records(dummy, app, unique, settings, store):
    """A quorum keeps no records of queued calls: the check says so, and ``enqueue()``. ``while_executing`` works."""
    settings.REDLOCK = {"default": entry_of("redlock.RedlockBackend", [store], node_timeout=5)}
    assert any(reason.startswith("task tests.tasks.app.until: store 'default'") for reason in refused_tasks())
    assert not any("tests.tasks.app.executing" in reason for reason in refused_tasks())
    with pytest.raises(LockNotSupported, match="keeps no records of queued tasks"):
        app.until.enqueue(unique)
    locks["default"].arm()
    app.executing.enqueue(unique)
    assert app.executing.call(unique) == unique
