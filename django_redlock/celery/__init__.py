"""``@single_instance_task`` allows at most one call of a Celery task at a time. It stands below ``@shared_task``."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
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

from ..core.events import logger
from ..signals import task_duplicate
from ..single_instance.call import Conflict, is_duplicate
from ..single_instance.lock_names import LockNamer
from ..single_instance.options import TaskOptions, checked_options, takes
from ..single_instance.protection import declared
from .messages import CeleryProtection
from .task import OPTIONS_ATTRIBUTE, SingleInstance, SingleInstanceMixin, SubmitMixin, bound_to, function_of, protect

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
        LockNamer(function, chosen.key, chosen.names)  # raises now if an argument does not exist
        _wrap_bind()
        setattr(function, OPTIONS_ATTRIBUTE, chosen)
        with suppress(TypeError):  # a callable object without weak references
            declared[function] = chosen
        return function

    return declare if function is None else declare(function)


@cache
def _wrap_bind() -> None:
    """Wrap ``Task.bind``, which ``@app.task``, ``@shared_task`` and ``app.register_task`` all call.

    Celery has no signal for this event, and a task's base class can override any hook that ``Task.bind`` calls. Tasks
    with the base class ``SingleInstance`` don't need the wrapper.
    """
    original: Any = vars(Task)["bind"]

    def bind(cls: type[Any], app: Any) -> Any:
        """Add the mixins to the task class ``cls``, then call Celery's ``Task.bind``."""
        _patch(cls)
        result = original.__func__(cls, app)
        bound_to(cls, app)
        return result

    Task.bind = classmethod(bind)  # type: ignore[method-assign,assignment]


def _patch(task: type[Any]) -> None:
    """Add the mixins to a task class whose ``run`` is decorated, and set its attribute ``redlock``.

    `SingleInstanceMixin` becomes the first base class. `SubmitMixin` comes after the task's own base classes and before
    Celery's ``Task``. Parent classes are patched first, because tasks may inherit from each other. A class without a
    decorated ``run`` gets no ``redlock``: inherited mixins then only call Celery's methods. A patched class is not
    patched again.
    """
    for base in task.__bases__:
        if issubclass(base, Task):
            _patch(base)
    options = getattr(function_of(task)[0], OPTIONS_ATTRIBUTE, None)
    if "redlock" in vars(task):
        return
    if options is None:
        if isinstance(getattr(task, "redlock", None), CeleryProtection) and not issubclass(task, SingleInstance):
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
    protect(task, options)
