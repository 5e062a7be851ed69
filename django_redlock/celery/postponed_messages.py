"""Messages of postponed calls: recorded instead of published, kept in the lock store, sent when a body has ended."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha1
from typing import Any

from celery import Celery
from kombu.serialization import dumps
from kombu.utils import json

from ..client.redact import redact
from ..core.events import logger

MAX_MESSAGE_BYTES = 16384  # a larger message is not kept, so its call starts at its ETA
# Arguments of kombu's ``Producer.publish`` that are not part of the message.
_NOT_KEPT = {"serializer", "retry", "retry_policy", "declare", "timeout", "confirm_timeout"}


def record(app: Celery, publish: Callable[[Any], Any]) -> bytes | None:
    """Return the message that ``publish(producer)`` would send, as JSON for `send`.

    The producer records the message and sends nothing. Returns ``None`` for more than `MAX_MESSAGE_BYTES` bytes.
    """
    with app.producer_pool.acquire(block=True) as producer:
        publish(recorder := _Recorder(producer))
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
        "broker": _broker_digest(app),
    }
    copy: bytes = json.dumps(kept).encode()
    return copy if len(copy) <= MAX_MESSAGE_BYTES else None


def send(app: Celery, copy: bytes) -> None:
    """Send the message ``copy``, which `record` has returned. Errors are logged and not raised.

    A message for another broker than that of ``app`` is dropped: apps with different brokers may share a lock. A call
    whose message is not sent starts later, at its ETA.
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


class _Recorder:
    """A kombu producer that sends nothing. It records the first message, and drops the event that Celery may add."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.recorded: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **options: Any) -> None:
        self.recorded = self.recorded or (body, options)
