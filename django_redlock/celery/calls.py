"""The calls of one Celery task: the names of their locks, and a `TaskCall` from each message.

The names are made from the arguments as a worker receives them, after serialization.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from hashlib import sha1, sha256
from math import inf
from numbers import Real
from pathlib import Path
from typing import Any
from uuid import UUID

from celery import Task
from celery.utils.time import maybe_make_aware
from django.db.models import Model
from kombu.serialization import dumps, loads

from ..single_instance.call import TaskCall
from ..single_instance.call_names import SCALARS, TextOf, canonical, mapping_text
from ..single_instance.options import TaskOptions
from ..single_instance.task_lock import TaskLock
from .messages import HEADER, Message, sent_headers

# Types whose ``str()`` shows the whole value.
_COMPLETE = (bytes, date, datetime, timedelta, Decimal, UUID, type(Path()))
# Default visibility timeout of kombu's Redis transport, in seconds. A copy of a message may wait this long for its ETA
# even if a shorter timeout is set.
VISIBILITY_SECONDS = 3600
# Seconds allowed for a redelivery after the visibility timeout: kombu looks for such messages every 100 s, and a
# redelivered message waits in its queue.
REDELIVERY_SECONDS = 900


class CeleryTaskLock(TaskLock):
    """The lock of one Celery task.

    ``bound``: whether the task's function takes ``self``. ``track_started``: Celery's option of this name. This package
    sets the task's own attribute to ``False``, and stores the state STARTED after the lock is acquired.
    """

    track_started = False

    def __init__(self, options: TaskOptions, function: Callable[..., Any], bound: bool) -> None:
        super().__init__(options, function)
        self._this = (None,) if bound else ()
        self._done_ttl = 0.0  # depends on the task's app, which exists at the first call

    def name(
        self,
        task: Task[Any, Any],
        args: Any,
        kwargs: Any,
        serializer: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the lock's name for a call of ``task`` with these arguments.

        ``serializer``: the kombu serializer of the message; ``None``: the task's. ``headers``: the message's headers,
        which the option ``key`` may use. Raises ``TypeError`` when the arguments don't fit the task.
        """
        if (dump := getattr(task, "_dump_pydantic_arguments", None)) is not None:
            args, kwargs = dump(args, kwargs)
        serializer = serializer or task.serializer or task.app.conf.task_serializer
        text_of = text_for(serializer)
        return self.namer.name(task.name, tuple(args or ()), kwargs or {}, text_of, self._this, headers or {})

    def message(self, task: Task[Any, Any], request: Any) -> Message:
        """Return the lock header in a received message. ``request``: the worker's Celery request for the message.

        If the message has no such header, for example because it was sent with ``send_task``, returns a new header with
        the lock's name for these arguments.
        """
        if message := Message.read(request.get(HEADER), request.id):
            return message
        # A redelivery has the same id and number of retries. A retry has another number.
        delivery_id = sha1(f"{request.id} {request.retries}".encode(), usedforsecurity=False).hexdigest()
        name = self.name(task, request.args, request.kwargs, headers=sent_headers(request))
        return Message(name, delivery_id, request.id)

    def new_call(
        self, task: Task[Any, Any], task_id: str, message: Message, options: Mapping[str, Any] | None = None
    ) -> TaskCall:
        """Return the `TaskCall` of ``message``.

        ``options``: the options of ``apply_async``. Their ETA and expiry determine how long the record of the queued
        call is kept. As in Celery, ``expires=None`` disables the task's own ``expires``.
        """
        if not self._done_ttl:  # reading a setting costs as much as the rest of this method
            transport = task.app.conf.broker_transport_options or {}
            visible = max(VISIBILITY_SECONDS, float(transport.get("visibility_timeout") or 0))
            self._done_ttl = visible + REDELIVERY_SECONDS
        (name, delivery_id, *_), ttl = message, self.options.queued_ttl
        if options is not None:
            ttl += _until(task, options.get("countdown") or options.get("eta"), 0.0)
            if not self.options.states.until_expiry:
                ttl = min(ttl, _until(task, options.get("expires", task.expires), inf))
        return self.task_call(name, task.name, task_id, delivery_id, ttl, self._done_ttl, message.prefix)

    def received_call(self, task: Task[Any, Any], request: Any) -> TaskCall:
        """Return the `TaskCall` of a message that a worker has received as ``request``."""
        return self.new_call(task, request.id, self.message(task, request))


def _until(task: Task[Any, Any], when: Any, never: float) -> float:
    """Return the seconds until ``when``: a number of seconds, a datetime, its ISO format, or ``None`` for ``never``."""
    if when is None:
        return never
    if isinstance(when, Real):
        return max(0.0, float(when))
    if isinstance(when, str):
        when = datetime.fromisoformat(when)
    left: timedelta = maybe_make_aware(when, task.app.timezone) - task.app.now()
    return max(0.0, left.total_seconds())


@cache
def text_for(serializer: str) -> TextOf:
    """Return a function that passes a value through the kombu ``serializer`` and returns the loaded value as text."""
    return partial(_received_text, serializer)


def _received_text(serializer: str, value: Any) -> str:
    """Serialize and load ``value``, which is not of a JSON type, and return the loaded value as text.

    The text of a model instance contains the model and the primary key. The text of any other object contains a digest
    of the serialized object, because ``str()`` may be equal for different objects. Raises kombu's ``EncodeError`` for a
    value that can't be serialized.
    """
    text_of = text_for(serializer)
    content_type, encoding, data = dumps([value], serializer)
    received = loads(data, content_type, encoding, accept=[content_type])[0]
    kind: Any = type(received)
    if kind is dict:
        return mapping_text(received, text_of)
    if kind in (*SCALARS, list, tuple):
        return canonical(received, text_of)
    if kind in (set, frozenset):
        text = f"{{{','.join(sorted(canonical(each, text_of) for each in received))}}}"
    elif isinstance(received, Model) and received.pk is not None:
        return f"{kind._meta.concrete_model._meta.label}({canonical(received.pk, text_of)})"
    elif kind in _COMPLETE:
        text = str(received)
    else:
        text = sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()[:32]
    return f"{kind.__name__}({text})"
