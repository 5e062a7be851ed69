"""Finds out whether a lock backend keeps records of queued and running tasks, and supports a task's mode and limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from django.utils.module_loading import autodiscover_modules

from ..backend_registry import locks
from ..backends.base import Backend
from ..backends.dummy import DummyBackend
from ..backends.locmem.backend import LocMemBackend
from ..core.algorithms.replicated import Replicated
from ..core.algorithms.single_node import SingleNode
from ..core.contract import Store
from ..core.events import logger
from .memory_store import DummyStore, MemoryStore
from .modes import TaskOptions

# The functions with a `single_instance_task` in the modules that were imported, and its options.
declared: WeakKeyDictionary[Callable[..., Any], TaskOptions] = WeakKeyDictionary()


def store_of(backend: Backend) -> Store | None:
    """Return the store for the records of queued and running calls; ``None`` if ``backend`` can't keep records.

    One Redis, a Redis Cluster, a primary with its replicas, and memory can keep records. Several nodes that vote can't,
    because no single script can change the record on all of them. The store of a `DummyBackend` accepts all calls and
    keeps nothing.
    """
    if isinstance(backend.algorithm, SingleNode | Replicated):
        return backend
    if isinstance(backend, DummyBackend):
        return DummyStore(backend)
    return MemoryStore(backend) if isinstance(backend, LocMemBackend) else None


def unsupported(backend: Backend, options: TaskOptions) -> str:
    """Return the reason why ``backend`` does not support a task with these options, or an empty text."""
    has_limits = "semaphore" in backend.kinds
    if store_of(backend) is not None or (options.name == "while_executing" and (has_limits or options.limit == 1)):
        return ""
    kept = f"store {options.using!r}: {type(backend).__name__} keeps no records of queued tasks"
    return f"{kept}: it supports while_executing{'' if has_limits else ', limit=1'}"


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
