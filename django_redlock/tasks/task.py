"""`ProtectedDjangoTask`: a task of ``django.tasks`` whose calls hold a lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import fields, replace
from functools import cache, partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from ..call_styles import Awaiting, Blocking, complete, run_to_end
from ..single_instance.call import Conflict
from ..single_instance.lifecycle import submit_call
from ..single_instance.options import TaskOptions
from ..single_instance.task_lock import declared
from .calls import DjangoRun, DjangoTaskLock, cancel_after_rollback, enqueuing, rename_flow
from .framework import duplicate_of, signals_of

_ATTRIBUTE = "__redlock_task__"  # attribute of the task's function that holds its `DjangoTaskLock`
# The function and the id of the call that a worker has announced and is about to run.
_announced: ContextVar[tuple[Any, str] | None] = ContextVar("redlock_announced", default=None)

if TYPE_CHECKING:

    class _Task:
        func: Callable[..., Any]
        takes_context: bool
        module_path: str
        run_after: Any

        def enqueue(self, *args: Any, **kwargs: Any) -> Any: ...
        async def aenqueue(self, *args: Any, **kwargs: Any) -> Any: ...
        def call(self, *args: Any, **kwargs: Any) -> Any: ...
        async def acall(self, *args: Any, **kwargs: Any) -> Any: ...

else:
    _Task = object


class ProtectedDjangoTask(_Task):
    """Mixin for the framework's ``Task`` class. A call holds a lock while it runs and, in some modes, while queued."""

    __slots__ = ()

    @property
    def redlock(self) -> DjangoTaskLock:
        """The lock of the task. It is an attribute of the task's function, which copies made by ``using()`` share."""
        lock: DjangoTaskLock = getattr(self.func, _ATTRIBUTE)
        return lock

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue the task, unless another call holds its lock. Returns the ``TaskResult``.

        For the result of a duplicate, `is_duplicate` returns ``True``. Raises ``LockNotAcquired`` for a duplicate with
        ``on_conflict="raise"``, ``LockUnavailable`` when the store is unavailable.
        """
        return complete(self._enqueue(Blocking(), super().enqueue, args, kwargs))

    async def aenqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue the task as `enqueue` does, under asyncio."""
        return await self._enqueue(Awaiting(), super().aenqueue, args, kwargs)

    async def _enqueue(self, style: Blocking, enqueue: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        lock = self.redlock
        call = lock.call(lock.name(args, kwargs), run_after=self.run_after)

        async def send() -> Any:
            token = enqueuing.set((call.name, call.task_id))
            try:
                result = await style.call(partial(enqueue, *args, **kwargs))
            finally:
                enqueuing.reset(token)
            await style.query(cancel_after_rollback, lock, call, result)
            return result

        result = await submit_call(style, lock, call, send)
        if isinstance(result, Conflict):
            return duplicate_of(self, args, kwargs, result)
        if call.mode.at_submit:
            await style.drive(rename_flow(call._replace(task_id=result.id), call.task_id), lock.store)
        return result

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body with its lock held, as a worker does. Returns its value. ``func()`` runs it without a lock."""
        style = Blocking()
        return complete(self._run(style, args, kwargs).run(partial(style.call, partial(super().call, *args, **kwargs))))

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body as `call` does, under asyncio.

        If the caller is cancelled, a body that runs in a thread runs to its end and keeps its lock until then.
        """
        acall, cancellable = super().acall, iscoroutinefunction(self.func)
        return await self._run(Awaiting(), args, kwargs).run(
            lambda: run_to_end(acall(*args, **kwargs), cancellable=lambda: cancellable)
        )

    def _run(self, style: Blocking, args: Any, kwargs: Any) -> DjangoRun:
        announced = _announced.get()
        _announced.set(None)
        task_id = announced[1] if announced is not None and announced[0] is self.func else ""
        sent = args
        if self.takes_context:
            context, *sent = args
            task_id = getattr(getattr(context, "task_result", None), "id", task_id)
        return DjangoRun(style, self.redlock, self.redlock.name(sent, kwargs), task_id)

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        changes = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "func"}  # type: ignore[arg-type]
        return _restored, (self.module_path, changes)


def _restored(path: str, changes: dict[str, Any]) -> Any:
    """Return the task at the dotted path ``path`` with the fields ``changes``. Called to unpickle a task."""
    return replace(import_string(path), **changes)


@cache
def _protected_class(base: Any) -> Any:
    return type("ProtectedTask", (ProtectedDjangoTask, base), {"__slots__": ()})


def protect(task: Any, options: TaskOptions) -> Any:
    """Return a copy of ``task`` whose calls have a lock. Raises ``TypeError`` if its function is protected already."""
    if hasattr(task.func, _ATTRIBUTE):
        raise TypeError(f"{task.module_path} has a single_instance_task already")
    setattr(task.func, _ATTRIBUTE, DjangoTaskLock(options, task))
    with suppress(TypeError):
        declared[task.func] = options
    signals_of(task).task_started.connect(_announce, dispatch_uid="django_redlock.tasks")
    made: Any = type(task)
    return _protected_class(made)(**{each.name: getattr(task, each.name) for each in fields(task) if each.init})


def _announce(task_result: Any, **_: Any) -> None:
    """Store the id of the call that a worker is about to run, because ``call()`` gets only the arguments.

    A receiver of the framework's signal ``task_started``.
    """
    _announced.set((task_result.task.func, task_result.id))
