"""Assertions about tasks of ``django.tasks``. They need its dummy backend, which records all calls."""

from __future__ import annotations

from typing import Any


def assert_results(number: int, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Fail unless ``number`` calls of ``task`` were enqueued, and return their ``TaskResult`` objects.

    If ``args`` or ``kwargs`` are not empty, only the calls count that need the same lock as a call with these
    arguments. Raises ``RuntimeError`` if the task's backend is not the dummy backend of ``django.tasks``.
    """
    results = getattr(task.get_backend(), "results", None)
    if results is None:
        raise RuntimeError(f"TASKS[{task.backend!r}] is not the dummy backend of django.tasks, which keeps the calls")
    name = _lock_name(task, args, kwargs) if args or kwargs else None
    mine = [each for each in results if each.task.func is task.func]
    found = [each for each in mine if name is None or _lock_name(task, each.args, each.kwargs) == name]
    if len(found) != number:
        every = ", ".join(f"{each.task.name}{tuple(each.args)}" for each in results) or "none"
        raise AssertionError(f"task {task.name} was enqueued {len(found)} times, not {number} (enqueued: {every})")
    return found


def _lock_name(task: Any, args: Any, kwargs: Any) -> str:
    return str(task.redlock.name(args, kwargs)) if hasattr(task, "redlock") else ""
