"""Finds the framework of a task: Django's own ``django.tasks``, or the package django-tasks."""

from __future__ import annotations

import sys
from dataclasses import fields
from functools import cache
from typing import Any

from ..single_instance.call import Conflict

_HOMES = ("django.tasks.base", "django_tasks.base")  # the modules of the class ``Task``


def is_task(candidate: Any) -> bool:
    """Return whether ``candidate`` is a task of one of the frameworks."""
    return any(each.__module__ in _HOMES and each.__name__ == "Task" for each in type(candidate).__mro__)


def base_module(task: Any) -> Any:
    """Return the module that defines ``Task`` and ``TaskResult`` in the task's framework."""
    return sys.modules[next(each.__module__ for each in type(task).__mro__ if each.__module__ in _HOMES)]


@cache
def _duplicate_class(result: type) -> Any:
    """Return a subclass of the framework's ``TaskResult`` for duplicates. It adds the attribute ``duplicate``."""
    return type("DuplicateResult", (result,), {"__slots__": (), "duplicate": True})


def duplicate_of(task: Any, args: Any, kwargs: Any, conflict: Conflict) -> Any:
    """Return the result of a refused ``enqueue()``: a ``TaskResult`` with the id of the call that holds the lock.

    The arguments are those of the refused call. The id is ``""`` if the other call has no id yet. The times are
    ``None``, and the status is ``READY`` or ``RUNNING``. ``refresh()`` loads the other call's values, except its
    arguments.
    """
    base = base_module(task)
    statuses = base.TaskResultStatus
    known = {
        "task": task,
        "id": conflict.holder,
        "status": statuses.RUNNING if conflict.state == "running" else statuses.READY,
        "args": args,
        "kwargs": kwargs,
        "backend": task.backend,
        "errors": [],
        "worker_ids": [],
    }
    return _duplicate_class(base.TaskResult)(
        **{each.name: known.get(each.name) for each in fields(base.TaskResult) if each.init}
    )
