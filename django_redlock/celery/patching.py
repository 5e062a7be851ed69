"""Adds the mixins to a decorated task when Celery binds the task's class to an app.

Every way to create a task calls ``Task.bind``: ``@app.task`` and ``@shared_task``, before and after the app is
finalized, and ``app.register_task`` with a class. A task's own base class can override any hook that ``Task.bind``
calls, so ``Task.bind`` itself is wrapped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from celery import Task

from ..core.events import logger
from . import execution
from .check_tasks import CheckTasks
from .cleanup import request_of
from .task import SingleInstanceMixin, SubmitMixin
from .task_lock import CeleryTaskLock

OPTIONS_ATTRIBUTE = "__redlock__"  # attribute of a decorated function that holds its `TaskOptions`


def patch(task: type[Any]) -> None:
    """Add the mixins to a task class whose ``run`` is decorated, and set its attribute ``redlock``, a `CeleryTaskLock`.

    `SingleInstanceMixin` becomes the first base class. `SubmitMixin` comes after the task's own base classes and before
    Celery's ``Task``. Parent classes are patched first, because tasks may inherit from each other. A class without a
    decorated ``run`` has no ``redlock``, even if it inherits the mixins, which then only call Celery's methods. A class
    that is patched already stays as it is.
    """
    for base in task.__bases__:
        if issubclass(base, Task):
            patch(base)
    run = inspect.getattr_static(task, "run", None)
    bound = not isinstance(run, staticmethod)
    function = run if bound else run.__func__
    options = getattr(function, OPTIONS_ATTRIBUTE, None)
    if "redlock" in vars(task):
        return
    if options is None:
        if isinstance(getattr(task, "redlock", None), CeleryTaskLock):
            task.redlock = property()  # hides the lock of the parent's body: a task has no such attribute
            logger.warning(
                "task %s has no lock: its run() is not decorated, unlike run() of its parent class", task.__name__
            )
        return
    if not issubclass(task, SingleInstanceMixin):
        bases = list(task.__bases__)
        last = max(place for place, base in enumerate(bases) if issubclass(base, Task))
        bases.insert(last + (bases[last] is not Task), SubmitMixin)
        task.__bases__ = (SingleInstanceMixin, *bases)
    task.redlock = CeleryTaskLock(options, function, bound)
    if any("__call__" in vars(each) for each in task.__mro__[: task.__mro__.index(SingleInstanceMixin)]):
        task.__call__ = _locked_call(task.__call__)
    own: Any = task.Request
    if not isinstance(own, property):  # the task's class defines Request, which hides the mixin's
        task.Request = property(lambda self: request_of(self, own))
    if task.before_start is not Task.before_start:
        task.before_start = _cancelling_before_start(task.before_start)


def _locked_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the ``__call__`` of a task's class, wrapped so that it runs with the lock held.

    Needed for a class that defines ``__call__`` itself, because this hides the mixin's ``__call__``, which holds the
    lock.
    """

    @wraps(call)
    def locked(self: SingleInstanceMixin, *args: Any, **kwargs: Any) -> Any:
        return self.run_body(partial(call, self), args, kwargs)

    return locked


def _cancelling_before_start(before_start: Callable[..., Any]) -> Callable[..., Any]:
    """Return the task's ``before_start``, wrapped so that an error cancels the queued call.

    After an error of ``before_start``, Celery never calls the body, so nothing else would remove the record.
    """

    @wraps(before_start)
    def cancelling(self: SingleInstanceMixin, *args: Any, **kwargs: Any) -> Any:
        try:
            return before_start(self, *args, **kwargs)
        except BaseException as error:
            execution.cancel_unstarted(self, error)
            raise

    return cancelling


_bind = Task.bind.__func__  # type: ignore[attr-defined]


def bind(cls: type[Any], app: Any) -> Any:
    """Add the mixins to the task class ``cls``, then call Celery's ``Task.bind``.

    A worker of ``app`` checks at its start whether the lock backends support these tasks (`CheckTasks`).
    """
    patch(cls)
    if hasattr(cls, "redlock"):
        app.steps["worker"].add(CheckTasks)
    bound = _bind(cls, app)
    _take_over_started(cls)
    return bound


def _take_over_started(task: type[Any]) -> None:
    """Move ``track_started`` from the task to its lock. A task without a lock gets back what its parent class had."""
    owned = [lock for each in task.__mro__ if isinstance(lock := vars(each).get("redlock"), CeleryTaskLock)]
    tracked = bool(task.track_started) or any(lock.track_started for lock in owned)
    if isinstance(own := vars(task).get("redlock"), CeleryTaskLock):
        own.track_started, task.track_started = tracked, False
    elif owned:
        task.track_started = tracked


def install() -> None:
    """Replace ``Task.bind`` with `bind` in this process."""
    Task.bind = classmethod(bind)  # type: ignore[method-assign,assignment]
