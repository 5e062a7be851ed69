"""The lock of one task of ``django.tasks``. It names the lock of each call, and makes a `TaskCall` of each call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils import timezone

from ..core.keys import keys_for
from ..single_instance.call import UNNAMED, TaskCall
from ..single_instance.call_names import canonical
from ..single_instance.ended_deliveries import new_delivery_id
from ..single_instance.options import TaskOptions
from ..single_instance.task_lock import TaskLock
from .framework import base_module


class DjangoTaskLock(TaskLock):
    """The lock of one task of ``django.tasks``."""

    def __init__(self, options: TaskOptions, task: Any) -> None:
        super().__init__(options, task.func)
        self.path: str = task.module_path
        self._context = (None,) if task.takes_context else ()  # the first argument, which a worker adds
        self._normalize: Callable[[Any], Any] = base_module(task).normalize_json

    def name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the lock's name for these arguments of ``enqueue()``.

        Raises ``TypeError`` when the arguments don't fit the task or can't be sent as JSON.
        """
        args, kwargs = self._as_json([args, kwargs])
        return self.namer.name(self.path, tuple(args), kwargs, self._text_of, self._context)

    def _as_json(self, value: Any) -> Any:
        """Return ``value`` as a worker receives it, after a round trip through JSON."""
        return json.loads(json.dumps(self._normalize(value)))

    def _text_of(self, value: Any) -> str:
        return canonical(self._as_json(value), repr)

    def call(self, name: str, task_id: str = "", run_after: Any = None) -> TaskCall:
        """Return a new `TaskCall` of the task, with a new delivery id. ``name``: the lock's name.

        ``task_id``: the id of the call's ``TaskResult``. ``""`` if it is not known: the `TaskCall` then gets a
        provisional id. ``run_after``: the datetime before which the call does not start, as in ``Task``.
        """
        options, records, delivery_id = self.options, self.records, new_delivery_id()
        delay = 0.0 if run_after is None else max(0.0, (run_after - timezone.now()).total_seconds())
        return TaskCall(
            name,
            keys_for(records.backend.encoded_prefix, name.encode()),
            self.path,
            task_id or UNNAMED + delivery_id,
            delivery_id,
            options.states,
            options.limit,
            options.queued_ttl + delay,
            0.0,
            ending="removed",  # the end is not remembered: a call that the task backend delivers again runs again
            cluster=records.cluster,
        )
