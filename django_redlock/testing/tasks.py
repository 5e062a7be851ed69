"""Captures calls of Celery tasks instead of sending them, so that tests need no broker.

The assertions also accept tasks of ``django.tasks``, for which Celery is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from ..signals import task_duplicate
from ..single_instance.call import Conflict
from ..tasks.framework import base_module, is_task

if TYPE_CHECKING:
    from celery import Celery
    from celery.result import AsyncResult, EagerResult

_active: list[CapturedTasks] = []


class UnregisteredTask(NamedTuple):
    """A task that is not registered in the app, for example a task of another service. It is called by name."""

    name: str

    def apply(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"task {self.name} is not registered in this app, so it can't be run here")


class EnqueuedCall(NamedTuple):
    """A call of a Celery task that was captured instead of sent. ``options``: the options of ``apply_async``."""

    task: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    task_id: str
    options: dict[str, Any]

    @property
    def lock_name(self) -> str:
        """The name of the call's lock; ``""`` if the task has no lock."""
        return _lock_name(self.task, self.args, self.kwargs, self.serializer)

    @property
    def serializer(self) -> str | None:
        """The serializer in the options of the call; ``None``: the task's own."""
        return self.options.get("serializer")

    def run(self) -> EagerResult[Any]:
        """Run the call in this process, as a worker would: with its lock, which is released at the end.

        Callbacks (``link``), the next steps of a chain and the body of a chord are not run, and headers of the call
        are not passed.

        Raises ``RuntimeError`` if the task is not registered in the app, for example a task of another service.
        """
        result: EagerResult[Any] = self.task.apply(
            self.args, self.kwargs, task_id=self.task_id, serializer=self.serializer
        )
        return result


class CapturedTasks:
    """The calls that `capture_tasks` has captured.

    ``enqueued``: the calls that would have been sent. ``duplicates``: a `Conflict` for each call that was refused as a
    duplicate.
    """

    def __init__(self) -> None:
        self.enqueued: list[EnqueuedCall] = []
        self.duplicates: list[Conflict] = []

    def calls(self, task: Any, *args: Any, **kwargs: Any) -> list[EnqueuedCall]:
        """Return the captured calls of ``task``.

        If arguments are given, returns only the matching calls: calls with the same lock name as a call with these
        arguments. If ``task`` has no lock, calls with the same arguments match.
        """
        mine = [call for call in self.enqueued if call.task.name == task.name]
        if not (args or kwargs):
            return mine
        serializers = {call.serializer for call in mine} or {None}
        names = {each: _lock_name(task, args, kwargs, each) for each in serializers}
        if any(names.values()):
            return [call for call in mine if call.lock_name == names[call.serializer]]
        return [call for call in mine if (call.args, call.kwargs) == (args, kwargs)]

    def run_all(self) -> list[EagerResult[Any]]:
        """Run the captured calls in order, also those that a running call adds, until none is left.

        Returns the results in this order.
        """
        results = []
        while self.enqueued:
            results.append(self.enqueued.pop(0).run())
        return results


@contextmanager
def capture_tasks() -> Iterator[CapturedTasks]:
    """Context manager: capture the calls of all Celery tasks instead of sending them, so that no broker is needed.

    Yields the `CapturedTasks`. Each call still writes its record to the lock store, and a duplicate is refused. So the
    test needs a lock store: locks in memory (`override_locks`) or a server.
    """
    from celery import Celery, uuid

    captured = CapturedTasks()

    def send_task(app: Celery, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> AsyncResult[Any]:
        task = options.pop("task_type", None) or app.tasks.get(name) or UnregisteredTask(name)
        task_id = options.pop("task_id", None) or uuid()
        captured.enqueued.append(EnqueuedCall(task, tuple(args or ()), dict(kwargs or {}), task_id, options))
        return app.AsyncResult(task_id)

    def refused(conflict: Conflict, **_: Any) -> None:
        captured.duplicates.append(conflict)

    task_duplicate.connect(refused)
    _active.append(captured)
    try:
        with mock.patch.object(Celery, "send_task", send_task):
            yield captured
    finally:
        _active.remove(captured)
        task_duplicate.disconnect(refused)


def assert_enqueued_once(task: Any, *args: Any, **kwargs: Any) -> Any:
    """Fail unless exactly one call of ``task`` was captured, and return its `EnqueuedCall`.

    If arguments are given, only matching calls are counted: calls with the same lock name as a call with these
    arguments. If ``task`` has no lock, calls with the same arguments match. Raises ``RuntimeError`` outside
    `capture_tasks`.

    A task of ``django.tasks`` needs the dummy backend of ``django.tasks`` instead of `capture_tasks`. Its
    ``TaskResult`` is returned.
    """
    return _assert_enqueued(1, task, args, kwargs)[0]


def assert_not_enqueued(task: Any, *args: Any, **kwargs: Any) -> None:
    """Fail if a call of ``task`` was captured. If arguments are given, fail only for a matching call.

    `assert_enqueued_once` explains which calls match, the ``RuntimeError``, and the use with ``django.tasks``.
    """
    _assert_enqueued(0, task, args, kwargs)


def _assert_enqueued(number: int, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    if is_task(task):
        return _assert_results(number, task, args, kwargs)
    if not _active:
        raise RuntimeError("no tasks are captured: use the fixture redlock_tasks, or capture_tasks()")
    found = _active[-1].calls(task, *args, **kwargs)
    if len(found) != number:
        every = ", ".join(f"{call.task.name}{call.args}" for call in _active[-1].enqueued) or "none"
        refused = sum(conflict.task == task.name for conflict in _active[-1].duplicates)
        what = f"enqueued {len(found)} times, not {number} (duplicates refused: {refused}; enqueued: {every})"
        raise AssertionError(f"task {task.name} was {what}")
    return found


def _lock_name(task: Any, args: Any, kwargs: Any, serializer: str | None) -> str:
    """Return the lock name of a call with these arguments; ``""`` without one.

    A call has no name if ``task`` has no lock, or if ``serializer`` can't serialize its arguments.
    """
    from kombu.exceptions import EncodeError

    with suppress(EncodeError):
        return str(task.redlock.name(task, args, kwargs, serializer)) if hasattr(task, "redlock") else ""
    return ""


# ── tasks of django.tasks ────────────────────────────────────────────────────────────────────────


def _assert_results(number: int, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Fail unless ``number`` calls of ``task`` were enqueued, and return their ``TaskResult`` objects.

    If ``args`` or ``kwargs`` are given, only matching calls are counted: calls with the same lock name as a call with
    these arguments. If ``task`` has no lock, calls with the same arguments match. Raises ``RuntimeError`` if the task's
    backend is not the dummy backend of ``django.tasks``.
    """
    results = getattr(task.get_backend(), "results", None)
    if results is None:
        raise RuntimeError(f"TASKS[{task.backend!r}] is not the dummy backend of django.tasks, which keeps the calls")
    found = [each for each in results if each.task.func is task.func]
    if args or kwargs:
        wanted = _identity(task, args, kwargs)
        found = [each for each in found if _identity(task, each.args, each.kwargs) == wanted]
    if len(found) != number:
        every = ", ".join(f"{each.task.name}{tuple(each.args)}" for each in results) or "none"
        raise AssertionError(f"task {task.name} was enqueued {len(found)} times, not {number} (enqueued: {every})")
    return found


def _identity(task: Any, args: Any, kwargs: Any) -> Any:
    """Return a value that identifies a call: the name of its lock, or its arguments as JSON if ``task`` has no lock."""
    if hasattr(task, "redlock"):
        return task.redlock.name(args, kwargs)
    return base_module(task).normalize_json([args, kwargs])  # the dummy backend keeps the arguments in this form
