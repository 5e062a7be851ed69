"""Calls that a worker refused at their start and put off: sent again with an ETA, and at once when a body ends.

The store keeps the message of such a call beside the record. The script that ends a body returns the message, and the
process that ended the body sends it: the prompt copy. The copy with the ETA is the backstop. Both copies have one
delivery id, so the store refuses the copy that comes second.
"""

from __future__ import annotations

import random
import time
from typing import Any

from celery import Celery
from kombu.serialization import dumps
from kombu.utils import json

from ..core.events import logger
from ..errors import LockError
from ..single_instance.call import TaskCall
from ..single_instance.conflicts import Conflict
from ..single_instance.transitions import keep_message, remember_ended
from .messages import Message
from .task_lock import ProtectedTask

MAX_RESEND_SECONDS = 60.0
MAX_MESSAGE_BYTES = 16384  # a larger message is not kept, so its call starts at its ETA
_LEASE_MARGIN = 0.01  # seconds after the end of a lease at which a call is tried again
# Arguments of kombu's ``Producer.publish`` that are not part of the message.
_NOT_KEPT = {"serializer", "retry", "retry_policy", "declare", "timeout", "confirm_timeout"}


def put_off(task: ProtectedTask, call: TaskCall, message: Message, conflict: Conflict) -> None:
    """Send the running message again with an ETA, and keep a copy that is sent when a body ends.

    The pause between tries grows. The ETA is at most just after the end of the lease that is in the way, so one pause
    may contain several tries. A prompt copy gets no further ETA: the copy with the ETA is already on its way.
    """
    if not message.prompt:
        now = time.time()
        if now >= message.until:
            pause = min(MAX_RESEND_SECONDS, 2.0**message.tries) * random.uniform(0.5, 1.0)
            message = message._replace(tries=message.tries + 1, until=now + pause)
        task.resend(min(message.until - now, conflict.remaining + _LEASE_MARGIN), message)
    if not task.redlock.keeps_records:
        return
    try:
        copy = _prompt_copy(task, message)
        if copy is not None and not task.redlock.drive(keep_message(call, copy)):
            send(task.app, copy)
    except Exception as error:  # noqa: BLE001  (the copy with the ETA has been sent)
        logger.info("task %s[%s] is tried again at its ETA only: %s", task.name, call.task_id, error)


def end_delivery(task: ProtectedTask, call: TaskCall) -> None:
    """Remember the delivery of a call that was put off as ended, so that its other copy is not run."""
    if not task.redlock.keeps_records:
        return  # there is no other copy
    try:
        task.redlock.drive(remember_ended(call))
    except LockError as error:
        logger.warning("task %s[%s] may run again: %s", task.name, call.task_id, error)


def send(app: Celery, copy: bytes | None) -> None:
    """Send a kept message. Errors are logged and not raised, because the copy with the ETA has been sent before."""
    if copy is None:
        return
    try:
        message = json.loads(copy)
        body = message.pop("body")
        body = body.encode("latin-1") if message.pop("binary") else body
        retry = {"retry": app.conf.task_publish_retry, "retry_policy": app.conf.task_publish_retry_policy}
        with app.producer_pool.acquire(block=True) as producer:
            producer.publish(body, **message, **retry)
    except Exception as error:  # noqa: BLE001
        logger.warning("a task that was put off is tried again at its ETA only: %r", error)


def _prompt_copy(task: ProtectedTask, message: Message) -> bytes | None:
    """Return the message without an ETA, as JSON with the arguments of ``Producer.publish``. ``None``: too large."""
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
    }
    copy: bytes = json.dumps(kept).encode()
    return copy if len(copy) <= MAX_MESSAGE_BYTES else None


class _Recorder:
    """A producer that sends nothing and records the first message, which Celery may follow with an event."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.recorded: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **options: Any) -> None:
        self.recorded = self.recorded or (body, options)
