"""How a declared function becomes a guarded task: when Celery binds the task's class to an app, ours is put before it.

Every way to make a task ends in ``Task.bind``: ``@app.task`` and ``@shared_task``, before and after the app is
finalized, and ``app.register_task`` with a class. There is no hook there that a task's own base couldn't hide, so
`bind` itself is wrapped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from celery import Task

from . import execution
from .cleanup import request_class
from .task import SingleInstanceMixin, SubmitMixin
from .task_lock import TaskLock

OPTIONS_ATTRIBUTE = "__redlock__"  # the attribute of a function that carries its options


def patch(task: type[Any]) -> None:
    """Put `SingleInstanceMixin` in front of the bases of a task class whose ``run`` was declared, and `SubmitMixin`
    behind them, once. Tasks may inherit from each other: the parent's turn comes first.
    """
    for base in task.__bases__:
        if issubclass(base, Task):
            patch(base)
    run = inspect.getattr_static(task, "run", None)
    bound = not isinstance(run, staticmethod)
    function = run if bound else run.__func__
    options = getattr(function, OPTIONS_ATTRIBUTE, None)
    if options is None or "redlock" in vars(task):
        return
    if not issubclass(task, SingleInstanceMixin):
        bases = list(task.__bases__)
        last = max(place for place, base in enumerate(bases) if issubclass(base, Task))
        bases.insert(last + (bases[last] is not Task), SubmitMixin)
        task.__bases__ = (SingleInstanceMixin, *bases)
    has_call = any("__call__" in vars(base) for base in _between(task))
    task.redlock = TaskLock(options, function, bound, has_call)
    if any("__call__" in vars(each) for each in task.__mro__[: task.__mro__.index(SingleInstanceMixin)]):
        task.__call__ = _locked_call(task.__call__)
    own: Any = task.Request
    if not isinstance(own, property):  # of the task's own class, as above
        task.Request = property(lambda _: request_class(own))
    if task.before_start is not Task.before_start:
        task.before_start = _releasing_before_start(task.before_start)


def _locked_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """A ``__call__`` of the task's own class: that comes before ours, and may call ``run`` itself."""

    @wraps(call)
    def fenced(self: SingleInstanceMixin, *args: Any, **kwargs: Any) -> Any:
        return self.run_body(partial(call, self), args, kwargs)

    return fenced


def _releasing_before_start(before_start: Callable[..., Any]) -> Callable[..., Any]:
    """The task's own ``before_start``: when that raises, the body with its fence is never called."""

    @wraps(before_start)
    def freeing(self: SingleInstanceMixin, *args: Any, **kwargs: Any) -> Any:
        try:
            return before_start(self, *args, **kwargs)
        except BaseException as error:
            execution.cancel_unstarted(self, error)
            raise

    return freeing


def _between(task: type[Any]) -> list[type]:
    """The bases between our class and Celery's own."""
    order = task.__mro__
    return list(order[order.index(SingleInstanceMixin) + 1 : order.index(Task)])


_bind = Task.bind.__func__  # type: ignore[attr-defined]


def bind(cls: type[Any], app: Any) -> Any:
    """``Task.bind``, which adopts first."""
    patch(cls)
    return _bind(cls, app)


def install() -> None:
    """Wrap ``Task.bind``, once a process."""
    Task.bind = classmethod(bind)  # type: ignore[method-assign,assignment]
