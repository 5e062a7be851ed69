"""The header of a protected task's message."""

from __future__ import annotations

from typing import Any, NamedTuple

from celery.app.task import Context

HEADER = "redlock"  # name of the message header, which holds the fields of `Message` as a list
ENTERED = "redlock_in_body"  # attribute of a request whose body has begun: direct calls from the body acquire no lock
ENDS = "redlock_ends"  # attribute of a request: the call that counts as ended when all that follows it has been sent


class Message(NamedTuple):
    """The header of a protected task's message."""

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
        """The value of the header. Workers of earlier versions read one without a prefix only."""
        return list(self if self.prefix else self[:-1])

    @classmethod
    def read(cls, header: Any, task_id: str) -> Message | None:
        """Return the `Message` in the value ``header``; ``None`` if it is missing, or belongs to another task id."""
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

    For a direct call, Celery copies the request, and collects ``headers`` that are ``None`` from its attributes. A
    retry would then send the mark, and its body would run without a lock.
    """
    if request.headers is None:
        request.headers = {}
    vars(request)[ENTERED] = True


def sent_headers(request: Any) -> dict[str, Any]:
    """Return the headers that the sender of a received message has added, without those that RabbitMQ adds.

    ``request``: the worker's Celery request for that message. If a sender has added a header named ``headers``, the
    request's attribute is that header, and leaves out the others.
    """
    own = {name: value for name, value in vars(request).items() if not (hasattr(Context, name) or name in _CELERYS)}
    headers = {name: value for name, value in own.items() if not name.startswith(_RABBITMQS)}
    nested = request.headers or {}
    return headers if nested.keys() <= own.keys() else {**headers, "headers": nested}
