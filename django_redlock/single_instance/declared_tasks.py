"""Finds declared tasks with a mode or limit that their lock backend does not support."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from django.utils.module_loading import autodiscover_modules

from ..backend_registry import locks
from ..core.events import logger
from .options import TaskOptions
from .task_lock import unsupported

# The functions with a `single_instance_task` in the modules that were imported, and its options.
declared: WeakKeyDictionary[Callable[..., Any], TaskOptions] = WeakKeyDictionary()


def refused_tasks() -> list[str]:
    """Return a reason for each declared task with a mode or limit that its lock backend does not support.

    Imports the modules ``tasks`` of Django's apps first, so that all their tasks are declared.
    """
    # Not by Celery's loader: in a worker, that runs Django's checks and would call this function again.
    try:
        autodiscover_modules("tasks")
    except Exception as error:  # noqa: BLE001  (a worker reports it)
        logger.info("a module of tasks can't be imported, so not all tasks are checked: %r", error)
    tasks = ((f"{function.__module__}.{function.__qualname__}", options) for function, options in declared.items())
    return list(refusals(tasks))


def refusals(tasks: Iterable[tuple[str, TaskOptions]]) -> Iterator[str]:
    """Yield a reason for each of ``tasks`` with a mode or limit that its lock backend does not support.

    ``tasks``: pairs of a task's name and its options.
    """
    for name, options in tasks:
        reason = ""
        with suppress(Exception):  # other checks report an alias that can't be built
            reason = unsupported(locks[options.using], options)
        if reason:
            yield f"task {name}: {reason}"
