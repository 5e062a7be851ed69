"""How a declared function becomes a guarded task: when Celery binds the task's class to an app, ours is put before it.

Every way to make a task ends in ``Task.bind``: ``@app.task`` and ``@shared_task``, before and after the app is
finalized, and ``app.register_task`` with a class. There is no hook there that a task's own base couldn't hide, so
`bind` itself is wrapped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from celery import Task

from . import worker
from .guard import Guard
from .task import Fence, SingleInstance

DECLARED = "__redlock__"  # the attribute of a function that carries its options


def adopt(task: type[Any]) -> None:
    """Put `SingleInstance` in front of a task class whose ``run`` was declared, and `Fence` behind its bases, once."""
    run = inspect.getattr_static(task, "run", None)
    bound = not isinstance(run, staticmethod)
    function = run if bound else run.__func__
    options = getattr(function, DECLARED, None)
    if options is not None and not issubclass(task, SingleInstance):
        bases = list(task.__bases__)
        last = max(place for place, base in enumerate(bases) if issubclass(base, Task))
        bases.insert(last + (bases[last] is not Task), Fence)
        task.__bases__ = (SingleInstance, *bases)
        has_call = any("__call__" in vars(base) for base in _between(task))
        task.redlock = Guard(options, function, bound, has_call)
        if task.before_start is not Task.before_start:
            task.before_start = _freeing(task.before_start)


def _freeing(before_start: Callable[..., Any]) -> Callable[..., Any]:
    """The task's own ``before_start``: when that raises, the body with its fence is never called."""

    @wraps(before_start)
    def freeing(self: SingleInstance, *args: Any, **kwargs: Any) -> Any:
        try:
            return before_start(self, *args, **kwargs)
        except BaseException as error:
            worker.never_began(self, error)
            raise

    return freeing


def _between(task: type[Any]) -> list[type]:
    """The bases between our class and Celery's own."""
    order = task.__mro__
    return list(order[order.index(SingleInstance) + 1 : order.index(Task)])


_bind = Task.bind.__func__  # type: ignore[attr-defined]


def bind(cls: type[Any], app: Any) -> Any:
    """``Task.bind``, which adopts first."""
    adopt(cls)
    return _bind(cls, app)


def install() -> None:
    """Wrap ``Task.bind``, once a process."""
    Task.bind = classmethod(bind)  # type: ignore[method-assign,assignment]
