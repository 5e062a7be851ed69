"""The messages of protected tasks: their header, and the copies of postponed calls.

A worker postpones a call whose lock is held: it sends the message again with an ETA, and stores a second copy, the
prompt copy, in the lock store. When the running task ends, its worker sends the prompt copy, so that the call starts
before its ETA. Both copies have the same delivery id, so the store refuses the copy that arrives second.
"""

from __future__ import annotations

import random
import time
from hashlib import sha1
from typing import Any, NamedTuple

from celery import Celery
from celery.app.task import Context
from kombu.serialization import dumps
from kombu.utils import json

from ..client.redact import redact
from ..core.events import logger
from ..errors import LockError
from ..single_instance.call import Conflict, TaskCall
from ..single_instance.records import keep_message, remember_ended

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
    prompt: bool = False  # the copy without an ETA that `put_off` stores, and that is sent when a body has ended
    serializer: str = ""  # named in ``apply_async``; Celery does not tell a worker
    prefix: str = ""  # the sender's key prefix, if the backend's is a function: a main process has no tenant

    @property
    def header(self) -> list[Any]:
        """The value of the header. The prefix is omitted if it is empty: workers of earlier versions can't read it."""
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


# ── postponed calls ──────────────────────────────────────────────────────────────────────────────

MAX_RESEND_SECONDS = 60.0  # longest pause between two tries of a call
MAX_MESSAGE_BYTES = 16384  # a larger message is not kept, so its call starts at its ETA
_LEASE_MARGIN = 0.01  # seconds after the end of a lease at which a call is tried again
# Arguments of kombu's ``Producer.publish`` that are not part of the message.
_NOT_KEPT = {"serializer", "retry", "retry_policy", "declare", "timeout", "confirm_timeout"}


def put_off(task: Any, call: TaskCall, message: Message, conflict: Conflict) -> None:
    """Send the running task's message again with an ETA, and store a copy that is sent when the lock is released.

    The delay until the ETA grows with each attempt, up to a minute. If the lease in ``conflict`` ends earlier, the ETA
    is just after the lease's end. Nothing is sent for a prompt copy, because a copy with an ETA was sent before.
    """
    if not message.prompt:
        now = time.time()
        if now >= message.until:
            pause = min(MAX_RESEND_SECONDS, 2.0**message.tries) * random.uniform(0.5, 1.0)
            message = message._replace(tries=message.tries + 1, until=now + pause)
        task.resend(min(message.until - now, conflict.remaining + _LEASE_MARGIN), message)
    if not task.redlock.records.keeps_records:
        return
    try:
        copy = _prompt_copy(task, message)
        if copy is not None and not task.redlock.drive(keep_message(call, copy)):
            send(task.app, copy)
    except Exception as error:  # noqa: BLE001  (the copy with the ETA has been sent)
        logger.info("task %s[%s] is tried again at its ETA only: %s", task.name, call.task_id, error)


def end_delivery(task: Any, call: TaskCall) -> None:
    """Record in the store that ``call`` has ended, so that no other copy of its message runs.

    Errors of the store are logged and not raised.
    """
    if not task.redlock.records.keeps_records:
        return  # there is no other copy
    try:
        task.redlock.drive(remember_ended(call))
    except LockError as error:
        logger.warning("task %s[%s] may run again: %s", task.name, call.task_id, error)


def send(app: Celery, copy: bytes) -> None:
    """Send ``copy``, a message that `put_off` has stored. Errors are logged and not raised.

    A message for another broker than that of ``app`` is dropped: apps with different brokers may share a lock. A call
    whose copy is not sent starts at its ETA.
    """
    try:
        message = json.loads(copy)
        if message.pop("broker") != _broker_digest(app):
            logger.info("task [%s] of another broker is tried again at its ETA only", message["correlation_id"])
            return
        body = message.pop("body")
        body = body.encode("latin-1") if message.pop("binary") else body
        retry = {"retry": app.conf.task_publish_retry, "retry_policy": app.conf.task_publish_retry_policy}
        with app.producer_pool.acquire(block=True) as producer:
            producer.publish(body, **message, **retry)
    except Exception as error:  # noqa: BLE001
        logger.warning("a postponed task is tried again at its ETA only: %r", error)


def _broker_digest(app: Celery) -> str:
    """Return a digest of the address and the transport options of the broker of ``app``.

    User and password are left out, because each worker may have its own.
    """
    broker: Any = app.connection_for_write()
    options = sorted((name, value) for name, value in broker.transport_options.items() if isinstance(value, str))
    address = (broker.transport_cls, redact(broker.hostname), broker.port, broker.virtual_host, options)
    return sha1(repr(address).encode(), usedforsecurity=False).hexdigest()


def _prompt_copy(task: Any, message: Message) -> bytes | None:
    """Return a copy of the running task's message without an ETA, as JSON arguments of kombu's ``Producer.publish``.

    Returns ``None`` for a copy of more than `MAX_MESSAGE_BYTES` bytes.
    """
    with task.app.producer_pool.acquire(block=True) as producer:
        recorder = _Recorder(producer)
        task.resend(0, message._replace(prompt=True), producer=recorder)
    body, options = recorder.recorded
    content_type, content_encoding, data = dumps(body, options["serializer"])
    text = data.decode("latin-1") if isinstance(data, bytes) else data
    kept = {
        **{name: value for name, value in options.items() if name not in _NOT_KEPT},
        "exchange": getattr(options["exchange"], "name", options["exchange"]),
        "content_type": content_type,
        "content_encoding": content_encoding,
        "body": text,
        "binary": text is not data,
        "broker": _broker_digest(task.app),
    }
    copy: bytes = json.dumps(kept).encode()
    return copy if len(copy) <= MAX_MESSAGE_BYTES else None


class _Recorder:
    """A kombu producer that sends nothing. It records the first message, and drops the event that Celery may add."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.recorded: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **options: Any) -> None:
        self.recorded = self.recorded or (body, options)
