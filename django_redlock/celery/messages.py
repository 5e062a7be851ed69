"""The identity and the times of one message of a task."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import inf
from numbers import Real
from typing import Any, NamedTuple

from celery import Task
from celery.utils.time import maybe_make_aware

from ..core.values import new_token

HEADER = "redlock"  # of the message: the fields of `Message` as a list


class Message(NamedTuple):
    """The header of a protected task's message. ``tries``: how often the message was sent again after a conflict.

    ``task_id`` shows that the header belongs to this message: middleware copies headers to other messages.
    """

    name: str
    delivery_id: str
    task_id: str
    tries: int = 0

    @classmethod
    def read(cls, header: Any, task_id: str) -> Message | None:
        """The header of the message of ``task_id``; ``None`` for any other header."""
        match header:
            case [str(name), str(delivery_id), str(own), int(tries)] if own == task_id:
                return cls(name, delivery_id, own, tries)
        return None


def new_delivery_id() -> str:
    """A random delivery id."""
    return new_token().decode()


def delay_of(task: Task[Any, Any], options: Mapping[str, Any]) -> float:
    """Seconds until a call with these options of ``apply_async`` may start."""
    return _until(task, options.get("countdown") or options.get("eta"), 0.0)


def expiry_of(task: Task[Any, Any], options: Mapping[str, Any]) -> float:
    """Seconds until such a call expires: a worker discards it, or RabbitMQ does so without a notice."""
    expires = options.get("expires")
    return _until(task, task.expires if expires is None else expires, inf)


def _until(task: Task[Any, Any], when: Any, never: float) -> float:
    """Seconds until ``when``: a number of seconds, a time, or a time as text, as in the options of a retry."""
    if when is None:
        return never
    if isinstance(when, Real):
        return max(0.0, float(when))
    if isinstance(when, str):
        when = datetime.fromisoformat(when)
    left: timedelta = maybe_make_aware(when, task.app.timezone) - task.app.now()
    return max(0.0, left.total_seconds())
