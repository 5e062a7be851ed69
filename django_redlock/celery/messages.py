"""The messages of protected tasks: the header that this package adds, and the lock's name from the arguments.

The name is made from the arguments as a worker receives them, after serialization.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from hashlib import sha1, sha256
from math import inf
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from celery import Task
from celery.app.task import Context
from celery.utils.time import maybe_make_aware
from django.db.models import Model
from kombu.serialization import dumps, loads

from ..single_instance.call import TaskCall
from ..single_instance.lock_names import SCALARS, TextOf, canonical, mapping_text
from ..single_instance.protection import TaskProtection

HEADER = "redlock"  # name of the message header, which holds the fields of `Message` as a list
ENTERED = "redlock_in_body"  # attribute of a request whose body has begun: direct calls from the body acquire no lock
ENDS = "redlock_ends"  # attribute of a request: the call that counts as ended when all that follows it has been sent


class Message(NamedTuple):
    """The header that this package adds to the message of a protected task."""

    name: str  # of the lock
    delivery_id: str  # identity of the message in the lock store; all copies of a message have the same one
    task_id: str  # shows that the header belongs to this message: middleware copies headers to other messages
    tries: int = 0  # pauses that the call has begun after conflicts; a pause may have several tries
    until: float = 0.0  # end of the present pause, in seconds since the epoch
    prompt: bool = False  # the copy without an ETA, which is sent when a running body has ended
    serializer: str = ""  # named in ``apply_async``; Celery does not tell a worker
    prefix: str = ""  # the sender's key prefix, if the backend's is a function: a main process has no tenant

    @property
    def header(self) -> list[Any]:
        """The value of the header. An empty ``prefix`` is omitted: earlier versions can't read the field."""
        return list(self if self.prefix else self[:-1])

    @classmethod
    def read(cls, header: Any, task_id: str) -> Message | None:
        """Return the `Message` that ``header`` contains for the task id ``task_id``; ``None`` if there is none."""
        fields = len(cls._fields)
        if isinstance(header, list) and len(header) in (fields - 1, fields) and header[2] == task_id:
            return cls(*header)
        return None


# Fields of a received message that are neither headers of its sender nor attributes of Celery's ``Context``.
_CELERYS = {"lang", "task", "argsrepr", "kwargsrepr", "compression", "redelivered", "hostname", "properties"}
_CELERYS |= {ENTERED, ENDS, "redlock_entered"}  # the last is in retries that an earlier version has sent
_RABBITMQS = ("x-death", "x-first-death-", "x-last-death-")


def enter(request: Any) -> None:
    """Mark that the body of a call has begun. ``request``: the call's Celery request.

    In a direct call, ``headers`` is set to ``{}`` if it is ``None``: Celery would otherwise copy the mark into the
    headers of a retry, and the retry would run without a lock.
    """
    if request.headers is None:
        request.headers = {}
    vars(request)[ENTERED] = True


def sent_headers(request: Any) -> dict[str, Any]:
    """Return the headers that the sender of a received message added, without the headers that RabbitMQ adds.

    ``request``: the worker's Celery request for the message. The attributes of the request are read, because a header
    named ``headers`` replaces all others in ``request.headers``.
    """
    own = {name: value for name, value in vars(request).items() if not (hasattr(Context, name) or name in _CELERYS)}
    headers = {name: value for name, value in own.items() if not name.startswith(_RABBITMQS)}
    nested = request.headers or {}
    return headers if nested.keys() <= own.keys() else {**headers, "headers": nested}


# Types whose ``str()`` shows the whole value.
_COMPLETE = (bytes, date, datetime, timedelta, Decimal, UUID, type(Path()))
# Default visibility timeout of kombu's Redis transport, in seconds. A copy of a message may wait this long for its ETA
# even if a shorter timeout is set.
VISIBILITY_SECONDS = 3600
# Seconds allowed for a redelivery after the visibility timeout: kombu looks for such messages every 100 s, and a
# redelivered message waits in its queue.
REDELIVERY_SECONDS = 900


class CeleryProtection(TaskProtection):
    """The protection of one Celery task.

    ``track_started``: Celery's option of this name. This package sets the task's own attribute to ``False``, and stores
    the state STARTED after the lock is acquired.
    """

    track_started = False
    _done_ttl = 0.0  # depends on the task's app, which exists at the first call

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
        text_of = text_for(serializer or task.serializer or task.app.conf.task_serializer)
        return self.lock_names.name(task.name, tuple(args or ()), kwargs or {}, text_of, headers or {})

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

    def call_of(self, task: Task[Any, Any], message: Message, options: Mapping[str, Any] | None = None) -> TaskCall:
        """Return the `TaskCall` of ``message``.

        ``options``: the options of ``apply_async``. Their ETA and expiry determine how long the record of the queued
        call is kept. As in Celery, ``expires=None`` disables the task's own ``expires``.
        """
        if not self._done_ttl:  # reading a setting costs as much as the rest of this method
            transport = task.app.conf.broker_transport_options or {}
            visible = max(VISIBILITY_SECONDS, float(transport.get("visibility_timeout") or 0))
            self._done_ttl = visible + REDELIVERY_SECONDS
        name, delivery_id, task_id, *_ = message
        ttl = self.options.queued_ttl
        if options is not None:
            ttl += _until(task, options.get("countdown") or options.get("eta"), 0.0)
            if not self.options.states.until_expiry:
                ttl = min(ttl, _until(task, options.get("expires", task.expires), inf))
        return self.task_call(name, task.name, task_id, delivery_id, ttl, self._done_ttl, message.prefix)

    def received_call(self, task: Task[Any, Any], request: Any) -> TaskCall:
        """Return the `TaskCall` of a message that a worker has received as ``request``."""
        return self.call_of(task, self.message(task, request))


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
    """Return a function that passes a value through the kombu ``serializer`` and returns the loaded value as text.

    The text of a model instance contains the model and the primary key. The text of any other object contains a digest
    of the serialized object, because ``str()`` may be equal for different objects. The function raises kombu's
    ``EncodeError`` for a value that can't be serialized.
    """

    def text_of(value: Any) -> str:
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

    return text_of
