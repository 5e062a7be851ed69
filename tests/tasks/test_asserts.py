"""``assert_enqueued_once`` for tasks of ``django.tasks``."""

import subprocess
import sys

import pytest

from django_redlock.testing import assert_enqueued_once, assert_not_enqueued


def test_arguments_in_the_form_of_json(dummy, app):
    """A call of a task without a lock matches if its arguments are the same after a round trip through JSON."""
    first = app.without_a_lock.enqueue((1, {"of": (2, b"3")}))
    assert assert_enqueued_once(app.without_a_lock, (1, {"of": (2, b"3")})).id == first.id
    assert_not_enqueued(app.without_a_lock, (1, {"of": (2, b"4")}))


def test_enqueued_once(dummy, app, unique):
    """However the call is spelled; a duplicate doesn't count, and neither does another task."""
    first = app.until.enqueue(unique)
    app.until.enqueue(name=unique, waits=True)
    app.short.enqueue(unique)
    assert assert_enqueued_once(app.until, name=unique).id == first.id
    assert_enqueued_once(app.until)
    assert_not_enqueued(app.until, "another")
    app.until.enqueue("another")
    with pytest.raises(AssertionError, match=rf"until was enqueued 2 times, not 1 \(enqueued: until\('{unique}',\)"):
        assert_enqueued_once(app.until)
    with pytest.raises(AssertionError, match="enqueued 1 times, not 0"):
        assert_not_enqueued(app.until, unique)


def test_another_backend(immediate, app):
    with pytest.raises(RuntimeError, match=r"TASKS\['default'\] is not the dummy backend"):
        assert_enqueued_once(app.until)


def test_without_celery():
    """Neither the decorator nor the assertions import Celery, a task framework or pytest."""
    code = (
        "import sys; sys.modules['celery'] = sys.modules['kombu'] = None\n"
        "from django.conf import settings; settings.configure()\n"
        "from django_redlock.tasks import single_instance_task\n"
        "from django_redlock.testing import assert_enqueued_once\n"
        "assert not any(name.startswith(('django_tasks', 'django.tasks', 'pytest')) for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
