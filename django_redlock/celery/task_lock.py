"""The lock of one task: its options, the names of its calls, and the store for its records."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha1
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from celery import Task

from ..backend_registry import locks
from ..backends.base import Backend
from ..core.algorithms.cluster import Cluster
from ..core.contract import Store
from ..core.events import logger
from ..core.flow.drivers import drive
from ..core.flow.requests import Flow
from ..core.keys import keys_for
from ..core.locks.lock import Lock
from ..core.options import LockOptions
from ..core.primitives.base import MUTEX, SEMAPHORE
from ..core.renewal import Orphan, renewal
from ..core.values import Claim
from ..errors import LockError, LockNotSupported, LockUnavailable
from .call_names import CallNamer
from .messages import HEADER, Message
from .modes import TaskOptions
from .records.body import QUEUED, BodyLock
from .records.call import TaskCall
from .records.support import store_of, unsupported
from .records.transitions import cancel

CANCEL_RETRY_SECONDS = 3600.0  # time for which a cancellation is retried while the store can't be asked
# Default visibility timeout of kombu's Redis transport. A copy of a message may wait this long for its ETA even if a
# shorter timeout is set.
VISIBILITY_SECONDS = 3600


class RecordStore(NamedTuple):
    """A backend and the store for its records. ``store`` ``None``: the backend can't keep records.

    ``lease``: the ttl of a running body in seconds.
    """

    backend: Backend
    store: Store | None
    lease: float


class TaskLock:
    """The lock of one task. ``has_call``: a base class of the task defines ``__call__``."""

    def __init__(self, options: TaskOptions, function: Callable[..., Any], bound: bool, has_call: bool) -> None:
        self.options = options
        self.has_call = has_call
        self._namer = CallNamer(function, options.key, options.unique_on)
        self._this = (None,) if bound else ()
        self._done_ttl: float | None = None
        self._records: RecordStore | None = None

    # ── the call ─────────────────────────────────────────────────────────────────────────────

    def name(self, task: Task[Any, Any], args: Any, kwargs: Any, serializer: str | None = None) -> str:
        """Return the lock's name for these arguments. Raises ``TypeError`` when the arguments don't fit the task."""
        serializer = serializer or task.serializer or task.app.conf.task_serializer
        return self._namer.name(task.name, tuple(args or ()), kwargs or {}, serializer, self._this)

    def message(self, task: Task[Any, Any], request: Any) -> Message:
        """Return the header of a received message.

        If the sender added none (``send_task`` by name), the header is built here.
        """
        if message := Message.read(request.get(HEADER), request.id):
            return message
        # A redelivery has the same id and number of retries. A retry has another number.
        delivery_id = sha1(f"{request.id} {request.retries}".encode(), usedforsecurity=False).hexdigest()
        return Message(self.name(task, request.args, request.kwargs), delivery_id, request.id)

    def new_call(
        self, task: Task[Any, Any], task_id: str, message: Message, delay: float = 0.0, expires: float = inf
    ) -> TaskCall:
        """Return a call that may start in ``delay`` seconds and expires in ``expires`` seconds."""
        options, backend = self.options, self.backend
        if self._done_ttl is None:  # reading a setting costs as much as the rest of this method
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
            cluster=isinstance(backend.algorithm, Cluster),
        )

    def received_call(self, task: Task[Any, Any], request: Any) -> TaskCall:
        """Return the call of a received message."""
        return self.new_call(task, request.id, self.message(task, request))

    # ── the store ────────────────────────────────────────────────────────────────────────────

    @property
    def backend(self) -> Backend:
        """The backend of the alias ``using``."""
        return locks[self.options.using]

    @property
    def keeps_records(self) -> bool:
        """Whether the store lists queued and running calls."""
        return self._record_store().store is not None

    @property
    def store(self) -> Store:
        """The store for the records. Raises ``LockNotSupported`` for a backend that can't keep records."""
        store = self._record_store().store
        if store is None:
            kept = f"store {self.options.using!r}: {type(self.backend).__name__} keeps no records of queued tasks"
            raise LockNotSupported("", unsupported(self.backend, self.options) or kept)
        return store

    def body_lock(self, call: TaskCall) -> Lock:
        """Return a handle for the lease of the body. Without records: a mutex, or a permit of a semaphore.

        Raises ``LockNotSupported`` if the mode needs records and the backend can't keep them.
        """
        backend, store, lease = self._record_store()
        options = LockOptions(lease, owner=call.owner, on_lost="warn")
        if store is None and not unsupported(backend, self.options):
            primitive = MUTEX if call.limit == 1 else SEMAPHORE._replace(limit=call.limit)
            return Lock(backend, primitive, call.name, call.keys, options)
        return BodyLock(self.store, call, options)

    def _record_store(self) -> RecordStore:
        backend = self.backend
        if self._records is None or self._records.backend is not backend:
            lease = backend.check_ttl(self.options.body_ttl(backend.max_ttl))
            self._records = RecordStore(backend, store_of(backend), lease)
        return self._records

    def cancel(self, call: TaskCall, same_delivery: bool = True) -> None:
        """Remove the queued record of a call that will not run.

        While the store is down, this is retried in the background. ``same_delivery``: only if the record belongs to
        this delivery. Errors are logged and not raised.
        """
        try:
            self.drive(cancel(call, same_delivery))
        except LockUnavailable as error:
            logger.warning("task %s[%s]: its lock is released later: %s", call.task, call.task_id, error)
            store = self.store
            claim = Claim(call.name, call.keys, call.delivery_id.encode(), b"", call.queued_ttl, payload=call)
            until = store.clock() + min(call.queued_ttl, CANCEL_RETRY_SECONDS)
            renewal.schedule(claim.token, Orphan(store, QUEUED, claim, until), 0.5)
        except LockError as error:
            logger.warning("task %s[%s]: %s", call.task, call.task_id, error)

    def drive(self, flow: Flow[Any]) -> Any:
        """Run a flow on the store for the records. Returns its result."""
        return drive(flow, self.store.perform)


if TYPE_CHECKING:

    class ProtectedTask(Task[Any, Any]):
        """A task with the members that `SubmitMixin` and `SingleInstanceMixin` add."""

        redlock: TaskLock

        def lock_name(self, args: Any, kwargs: Any, serializer: str | None) -> str:
            """Return the lock's name for a call."""

        def resend(self, seconds: float, message: Message, **options: Any) -> Any:
            """Send the running message again, to start in ``seconds``."""

else:
    ProtectedTask = Task
