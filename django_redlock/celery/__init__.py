"""``@single_instance_task`` allows at most one call of a Celery task at a time. It stands below ``@shared_task``."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

try:
    from celery import Task
    from celery.local import Proxy
except ModuleNotFoundError as error:
    if error.name != "celery":
        raise
    raise ModuleNotFoundError(
        'django_redlock.celery needs Celery: pip install "django-redlock[celery]"', name=error.name
    ) from error

from ..signals import task_duplicate
from ..single_instance.call import Conflict, is_duplicate
from ..single_instance.call_names import CallNamer
from ..single_instance.options import TaskOptions, checked_options, takes
from ..single_instance.task_lock import declared
from . import patching
from .patching import SingleInstance

__all__ = ["Conflict", "SingleInstance", "is_duplicate", "single_instance_task", "task_duplicate"]


@takes(TaskOptions)
def single_instance_task(function: Any = None, /, **given: Any) -> Any:
    """Allow at most one call of a Celery task at a time. The decorator stands below ``@shared_task`` or ``@app.task``.

    ::

        @shared_task
        @single_instance_task(unique_on=["order_id"])
        def settle(order_id, note=""): ...

    Options, times in seconds (the page "Celery tasks that run once at a time" has the tables of modes and actions):

    {options}

    Raises ``TypeError`` and ``ValueError`` for invalid options.
    """
    chosen = checked_options(given)

    def declare(function: Any) -> Any:
        if issubclass(type(function), Task | Proxy):  # isinstance() would resolve a proxy, which builds the app
            raise TypeError(
                "single_instance_task must stand below the decorator that makes the task:\n"
                "    @shared_task\n    @single_instance_task\n    def ..."
            )
        if hasattr(function, "enqueue"):
            raise TypeError("a task of django.tasks takes django_redlock.tasks.single_instance_task, above @task")
        if not callable(function):
            raise TypeError(f"single_instance_task takes keyword arguments only, not {function!r}")
        CallNamer(function, chosen.key, chosen.names)  # raises now if an argument does not exist
        patching.install()
        setattr(function, patching.OPTIONS_ATTRIBUTE, chosen)
        with suppress(TypeError):  # a callable object without weak references
            declared[function] = chosen
        return function

    return declare if function is None else declare(function)
