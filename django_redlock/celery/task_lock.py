"""What stands between a task and its lock: the key of a call, its ticket, and the store that keeps the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from hashlib import sha1
from math import inf
from numbers import Real
from typing import Any, NamedTuple

from celery import Task
from celery.utils.time import maybe_make_aware

from ..backends.base import Backend
from ..backends.dummy import DummyBackend
from ..backends.locmem import LocMemBackend
from ..core.algorithms.single_node import SingleNode
from ..core.contract import Store
from ..core.events import logger
from ..core.flow.drivers import drive
from ..core.flow.requests import Flow
from ..core.keys import keys_for
from ..core.locks.lock import Lock
from ..core.options import LockOptions
from ..core.primitives.base import MUTEX
from ..core.renewal import Orphan, renewal
from ..core.values import Claim, new_token
from ..errors import LockError, LockNotSupported, LockUnavailable
from ..handler import locks
from .call_names import CallNamer
from .memory_records import MemoryStore
from .modes import TaskOptions
from .records import BodyLease, BodyLock, CancelRecord, TaskCall, cancel

HEADER = "redlock"  # of the message: the fields of `Message` as a list
RETRY_SECONDS = 3600.0  # seconds for which a record that could not be forgotten is tried again
# Seconds after which kombu's Redis transport delivers again what was not acknowledged, by default. Where it does so
# earlier, a copy may lie in a queue for long, or wait for its ETA, all the same.
VISIBILITY_SECONDS = 3600


class Message(NamedTuple):
    """What the header says. ``tries``: how often the message was put off because another was in the way.

    ``task_id``: of the task whose message it is. Middleware copies headers to other messages.
    """

    name: str
    delivery_id: str
    task_id: str
    tries: int = 0

    @classmethod
    def read(cls, header: Any, task_id: str) -> Message | None:
        """The header of the message of ``task_id``; ``None`` for one of another message, and for anything else."""
        match header:
            case [str(name), str(sending), str(own), int(tries)] if own == task_id:
                return cls(name, sending, own, tries)
        return None


class TaskLock:
    """The declaration of one task, joined with the task."""

    def __init__(self, options: TaskOptions, function: Callable[..., Any], bound: bool, has_call: bool) -> None:
        self.options = options
        self._key = CallNamer(function, options.key, options.unique_on)
        self._this = (None,) if bound else ()
        self.has_call = has_call
        self._done_ttl: float | None = None
        self._store: tuple[Backend, Store | None, float] | None = None

    # ── the call ─────────────────────────────────────────────────────────────────────────────

    def name(self, task: Task[Any, Any], args: Any, kwargs: Any, serializer: str | None = None) -> str:
        """The lock's name for these arguments. Raises ``TypeError`` when they don't fit the task."""
        serializer = serializer or task.serializer or task.app.conf.task_serializer
        return self._key.name(task.name, tuple(args or ()), kwargs or {}, serializer, self._this)

    def message(self, task: Task[Any, Any], request: Any) -> Message:
        """The header of a message that a worker got; made up for one that was sent by the task's name only."""
        if message := Message.read(request.get(HEADER), request.id):
            return message
        # Redelivered it is the same again, and a retry is another one.
        sending = sha1(f"{request.id} {request.retries}".encode(), usedforsecurity=False).hexdigest()
        return Message(self.name(task, request.args, request.kwargs), sending, request.id)

    def new_call(
        self, task: Task[Any, Any], task_id: str, message: Message, delay: float = 0.0, expires: float = inf
    ) -> TaskCall:
        """The terms of one call, which may start ``delay`` seconds from now, and in ``expires`` seconds no more."""
        options, backend = self.options, self.backend
        if self._done_ttl is None:  # looking a setting up costs as much as all the rest here
            transport = task.app.conf.broker_transport_options or {}
            self._done_ttl = max(VISIBILITY_SECONDS, float(transport.get("visibility_timeout") or 0))
        return TaskCall(
            message.name,
            keys_for(backend.encoded_prefix, message.name.encode()),
            task.name,
            task_id,
            message.delivery_id,
            options.mode,
            options.limit,
            options.queued_ttl + delay if options.mode.until_expiry else min(options.queued_ttl + delay, expires),
            self._done_ttl,
        )

    # ── the store ────────────────────────────────────────────────────────────────────────────

    @property
    def backend(self) -> Backend:
        """The backend of the alias ``using``."""
        return locks[self.options.using]

    @property
    def store(self) -> Store:
        """Where records are kept. Raises ``LockNotSupported`` for a backend that can't keep them soundly."""
        store = self._find_store()[1]
        if store is None:
            kept = f"store {self.options.using!r}: {type(self.backend).__name__} keeps no records of queued tasks"
            raise LockNotSupported("", f"{kept}: it supports while_executing, limit=1")
        return store

    def lock(self, ticket: TaskCall) -> Lock:
        """The lease of the body. Where no records are kept, ``while_executing`` is an ordinary mutex."""
        options, (backend, store, lease) = self.options, self._find_store()
        terms = LockOptions(lease, owner=ticket.owner, on_lost="warn")
        if store is not None:
            return BodyLock(store, BodyLease.of(ticket), ticket.name, ticket.keys, terms)
        if options.name != "while_executing" or options.limit > 1:
            return Lock(self.store, MUTEX, ticket.name, ticket.keys, terms)  # raises
        return Lock(backend, MUTEX, ticket.name, ticket.keys, terms)

    def _find_store(self) -> tuple[Backend, Store | None, float]:
        """The backend, the store of its records if it can keep them, and the lease of a running body in seconds."""
        backend = self.backend
        if self._store is None or self._store[0] is not backend:
            self._store = backend, _store_of(backend), backend.check_ttl(self.options.body_ttl(backend.max_ttl))
        return self._store

    def cancel(self, call: TaskCall, same_delivery: bool = True) -> None:
        """The task will not run: forget its queued record, as soon as the store can be asked. Never raises."""
        try:
            self.drive(cancel(call, same_delivery))
        except LockUnavailable as error:
            logger.warning("task %s[%s]: its lock is freed later: %s", call.task, call.task_id, error)
            store = self.store
            claim = Claim(call.name, call.keys, call.delivery_id.encode(), b"", call.queued_ttl)
            orphan = Orphan(store, CancelRecord.of(call), claim, store.clock() + min(call.queued_ttl, RETRY_SECONDS))
            renewal.schedule(claim.token, orphan, 0.5)
        except LockError as error:
            logger.warning("task %s[%s]: %s", call.task, call.task_id, error)

    def drive(self, flow: Flow[Any]) -> Any:
        """Run a flow on the store."""
        return drive(flow, self.store.perform)


def _store_of(backend: Backend) -> Store | None:
    """Where records can be kept: one Redis, or memory. A majority of nodes can't hand a record over in one step."""
    if isinstance(backend.algorithm, SingleNode):
        return backend
    return MemoryStore(backend) if isinstance(backend, LocMemBackend | DummyBackend) else None


def new_delivery_id() -> str:
    """The identity of one message."""
    return new_token().decode()


def delay_of(task: Task[Any, Any], options: Mapping[str, Any]) -> float:
    """Seconds until the call with these options of ``apply_async`` may start."""
    return _until(task, options.get("countdown") or options.get("eta"), 0.0)


def expiry_of(task: Task[Any, Any], options: Mapping[str, Any]) -> float:
    """Seconds until that call is discarded, by a worker or, without a word, by RabbitMQ."""
    expires = options.get("expires")
    return _until(task, task.expires if expires is None else expires, inf)


def _until(task: Task[Any, Any], when: Any, never: float) -> float:
    """Seconds until ``when``: a number of seconds, a time, or one as text, as in the options of a retry."""
    if when is None:
        return never
    if isinstance(when, Real):
        return max(0.0, float(when))
    if isinstance(when, str):
        when = datetime.fromisoformat(when)
    left: timedelta = maybe_make_aware(when, task.app.timezone) - task.app.now()
    return max(0.0, left.total_seconds())
