"""Runs a task in the calling process, by ``apply()`` or in Celery's eager mode, with its lock held."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from celery import Task, states
from celery.result import EagerResult
from kombu.utils.uuid import uuid

from ..core.events import logger
from ..core.flow.drivers import drive
from ..core.values import Refusal
from ..errors import LockUnavailable
from ..single_instance.conflicts import conflict_of, decide, duplicate_result, flag_result, notify_duplicate
from ..single_instance.ended_deliveries import new_delivery_id
from ..single_instance.ending import end_flow
from .messages import Message
from .protected_task import ProtectedTask
from .put_off import send

_PARAMETERS = [*inspect.signature(Task.apply).parameters][3:]  # those after ``self``, ``args`` and ``kwargs``
_ACTIONS = ("skip", "log", "raise", "wait", "replace", "retry")
# Lock name and id of each eager task that encloses this call. Celery runs an eager retry inside the retried call.
_running: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("redlock_eager", default=())
# Lock names of the bodies that are in ``replace()`` now. The replacing task runs before ``replace()`` returns.
_replaced: ContextVar[tuple[str, ...]] = ContextVar("redlock_replaced", default=())


def is_always_eager(conf: Any) -> bool:
    """Return whether Celery's setting ``task_always_eager`` is on.

    Looks for the names of the setting (such as ``CELERY_ALWAYS_EAGER``) first, and reads the setting only if one of
    them is present. Reading an absent setting costs as much as the rest of a submit, because Celery searches each name
    in each source of settings, with an exception for each miss.
    """
    *places, _defaults = conf.maps
    for place in places:
        for name in _spellings(conf.prefix):
            if name in place:
                return bool(conf.task_always_eager)
    return not places and bool(conf.task_always_eager)


@cache
def _spellings(prefix: str | None) -> set[str]:
    name = f"{prefix or ''}task_always_eager"
    return {"task_always_eager", "CELERY_ALWAYS_EAGER", name.lower(), name.upper()}


def apply(task: ProtectedTask, run: Callable[..., Any], args: Any, kwargs: Any, *rest: Any, **options: Any) -> Any:
    """Run the task in this process with its lock held. Returns the ``EagerResult``, with an attribute ``duplicate``.

    ``run``: Celery's own ``apply``. The result of a duplicate has ``duplicate=True`` and `duplicate_result` as its
    value. Raises ``LockNotAcquired`` for a duplicate with ``on_conflict="raise"`` or ``"wait"``, ``LockUnavailable``
    when the store is unavailable.
    """
    options |= zip(_PARAMETERS, rest, strict=False)
    task_id = options["task_id"] = options.get("task_id") or uuid()
    declared = task.redlock.options
    message = Message(task.lock_name(args, kwargs, options.get("serializer")), new_delivery_id(), task_id)

    def run_as_holder() -> Any:
        with _value(_replaced, ()), _value(_running, (*_running.get(), (message.name, task_id))):
            return flag_result(run(args, kwargs, **options), False)

    if message.name in _replaced.get():
        return run_as_holder()
    if (message.name, task_id) in _running.get():
        return run(args, kwargs, **options)
    call = task.redlock.new_call(task, task_id, message)
    wait = declared.wait if "wait" in (declared.at_submit, declared.at_start) else 0.0
    try:
        lock = task.redlock.body_lock(call)
        outcome = drive(lock.acquire_flow(wait), lock.store.perform)
        if isinstance(outcome, Refusal):
            conflict = conflict_of(task.name, task_id, call.name, "submit", outcome)
            action = decide(declared.at_submit, conflict, _ACTIONS)
            if action == "wait" and callable(declared.at_submit):
                outcome = drive(lock.acquire_flow(declared.wait), lock.store.perform)
    except LockUnavailable as error:
        if not declared.run_unprotected:
            raise
        logger.warning("task %s[%s] runs unprotected: %s", task.name, task_id, error)
        return run(args, kwargs, **options)
    if isinstance(outcome, Refusal):
        notify_duplicate(conflict, action == "log")
        if action in ("raise", "wait"):
            raise conflict.error()
        return flag_result(
            EagerResult(conflict.holder or task_id, duplicate_result(conflict), states.SUCCESS, name=task.name), True
        )
    try:
        return run_as_holder()
    finally:
        send(task.app, drive(end_flow(lock, "removed"), lock.store.perform))  # no broker can deliver the call again


def replacing(task_id: str | None) -> AbstractContextManager[None]:
    """Return a context manager for Celery's ``replace()`` in the eager body of the task ``task_id``.

    Within the context, a replacing task that needs the same lock shares the lock of the body.
    """
    return _value(_replaced, tuple(name for name, running in _running.get() if running == task_id))


@contextmanager
def _value(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
