"""Assertions about tasks of ``django.tasks``. They need its dummy backend, which records all calls."""

from __future__ import annotations

from typing import Any

from ..tasks.framework import base_module


def assert_results(number: int, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
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
    """Return what distinguishes a call: the name of its lock; its arguments as JSON if ``task`` has no lock."""
    if hasattr(task, "redlock"):
        return task.redlock.name(args, kwargs)
    return base_module(task).normalize_json([args, kwargs])  # the dummy backend keeps the arguments in this form
