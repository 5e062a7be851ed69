"""Adds the mixins to a decorated task when Celery binds the task's class to an app.

``@app.task``, ``@shared_task`` and ``app.register_task`` all call ``Task.bind``. Celery has no signal for this event,
and a task's base class can override any hook that ``Task.bind`` calls. So the first decorated task wraps ``Task.bind``.
Tasks with the base class ``SingleInstance`` don't need the wrapper.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

from celery import Task
from celery.signals import task_postrun

from ..core.events import logger
from ..single_instance.options import OPTIONS, checked_options
from .calls import CeleryTaskLock
from .main_process import CheckTasks, request_of
from .task import OLD_OPTIONS, SingleInstanceMixin, SubmitMixin, refuse_old_options
from .worker_run import cancel_unstarted

OPTIONS_ATTRIBUTE = "__redlock__"  # attribute of a decorated function that holds its `TaskOptions`


def patch(task: type[Any]) -> None:
    """Add the mixins to a task class whose ``run`` is decorated, and set its attribute ``redlock``, a `CeleryTaskLock`.

    `SingleInstanceMixin` becomes the first base class. `SubmitMixin` comes after the task's own base classes and before
    Celery's ``Task``. Parent classes are patched first, because tasks may inherit from each other. A class without a
    decorated ``run`` gets no ``redlock``: inherited mixins then only call Celery's methods. A patched class is not
    patched again.
    """
    for base in task.__bases__:
        if issubclass(base, Task):
            patch(base)
    function, bound = _function_of(task)
    options = getattr(function, OPTIONS_ATTRIBUTE, None)
    if "redlock" in vars(task):
        return
    if options is None:
        if isinstance(getattr(task, "redlock", None), CeleryTaskLock) and not issubclass(task, SingleInstance):
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
    protect(task, CeleryTaskLock(options, function, bound))


def _function_of(task: type[Any]) -> tuple[Any, bool]:
    """Return the function of a task's body, and whether the function takes the task as its first argument."""
    run: Any = inspect.getattr_static(task, "run", None)
    return (run.__func__, False) if isinstance(run, staticmethod) else (run, True)


def protect(task: type[Any], lock: CeleryTaskLock) -> None:
    """Set the lock of a task class that has the mixins, and wrap its methods that override those of the mixins."""
    task.redlock = lock
    if any("__call__" in vars(each) for each in task.__mro__[: task.__mro__.index(SingleInstanceMixin)]):
        task.__call__ = _locked_call(task.__call__)
    if task.before_start is not Task.before_start:
        task_postrun.connect(cancel_unstarted)  # not for each task: a receiver costs time
    own: Any = task.Request
    if not isinstance(own, property):  # the task's class defines Request, which hides the mixin's
        task.Request = property(lambda self: request_of(self, own))


def _locked_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the ``__call__`` that a task's class defines itself, wrapped so that it runs with the lock held."""

    @wraps(call)
    def locked(self: SingleInstanceMixin, *args: Any, **kwargs: Any) -> Any:
        return self.run_body(partial(call, self), args, kwargs)

    return locked


def bound_to(task: type[Any], app: Any) -> None:
    """Make workers of ``app`` check the task when they start, and turn off the task's ``track_started``.

    `WorkerRun.before_body` stores STARTED instead. A task without a lock gets its parent class's value back.
    """
    owned = [lock for each in task.__mro__ if isinstance(lock := vars(each).get("redlock"), CeleryTaskLock)]
    tracked = bool(task.track_started) or any(lock.track_started for lock in owned)
    if isinstance(own := vars(task).get("redlock"), CeleryTaskLock):
        own.track_started, task.track_started = tracked, False
        app.steps["worker"].add(CheckTasks)
    elif owned:
        task.track_started = tracked


class SingleInstance(SingleInstanceMixin, SubmitMixin):
    """A base class for tasks. The options of ``single_instance_task`` are class attributes.

    They may also be given to ``@app.task(base=SingleInstance, key="settle:{id}")``.
    """

    abstract = True

    @property
    def redlock(self) -> CeleryTaskLock:  # type: ignore[override]
        """The lock of the task. Raises ``TypeError`` if the task was bound without one."""
        raise TypeError(f"task {self.name} has no lock: its on_bound() must call super().on_bound(app)")

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Create the lock of a task that Celery has bound to ``app``. Celery calls this method.

        Raises ``TypeError`` and ``ValueError`` for invalid options.
        """
        super().on_bound(app)
        function, bound = _function_of(cls)
        if not ("redlock" in vars(cls) or hasattr(function, OPTIONS_ATTRIBUTE) or function is Task.run):
            refuse_old_options((name for name in OLD_OPTIONS if hasattr(cls, name)), f"task {cls.name}")
            given = {name: getattr(cls, name) for name in OPTIONS if hasattr(cls, name)}
            protect(cls, CeleryTaskLock(checked_options(given), function, bound))
        bound_to(cls, app)


@cache
def install() -> None:
    """Wrap ``Task.bind`` in this process."""
    original: Any = vars(Task)["bind"]

    def bind(cls: type[Any], app: Any) -> Any:
        """Add the mixins to the task class ``cls``, then call Celery's ``Task.bind``."""
        patch(cls)
        result = original.__func__(cls, app)
        bound_to(cls, app)
        return result

    Task.bind = classmethod(bind)  # type: ignore[method-assign,assignment]
