"""The protection of one task: its options, the names of its locks, and the store for the records of its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from django.utils.module_loading import autodiscover_modules

from ..backend_registry import locks
from ..backends.base import Backend
from ..core.algorithms.cluster import Cluster
from ..core.background.work import Orphan, background
from ..core.contract import Store
from ..core.events import logger
from ..core.flow.drivers import drive
from ..core.flow.requests import Flow
from ..core.keys import keys_for
from ..core.locks.lock import Lock
from ..core.options import LockOptions
from ..core.primitives.base import MUTEX, semaphore_primitive
from ..core.values import Claim
from ..errors import LockError, LockNotSupported, LockUnavailable
from .call import TaskCall
from .lock_names import LockNamer
from .options import TaskOptions
from .records import QUEUED, BodyLock, cancel, cancel_token

CANCEL_RETRY_SECONDS = 3600.0  # time for which a cancellation is retried while the store is unavailable

# The functions with a `single_instance_task` in the modules that were imported, and its options.
declared: WeakKeyDictionary[Callable[..., Any], TaskOptions] = WeakKeyDictionary()


class RecordStore(NamedTuple):
    """The backend of a task's locks, and the store that performs their requests."""

    backend: Backend
    store: Store  # of the records of queued and running calls; `backend` if it keeps no records
    keeps_records: bool
    lease: LockOptions  # of a running body


class TaskProtection:
    """The protection of one task. Calls with the same lock name exclude each other.

    ``lock_names``: derives the lock's name from the arguments of a call. ``this``: as for `LockNamer`.
    """

    def __init__(self, options: TaskOptions, function: Callable[..., Any], this: tuple[None, ...]) -> None:
        self.options = options
        self.lock_names = LockNamer(function, options.key, options.names, this)
        self._records: RecordStore | None = None

    @property
    def records(self) -> RecordStore:
        """The store of the records. Raises ``LockNotSupported`` if its backend does not support the mode or limit."""
        backend, records = locks[self.options.using], self._records
        if records is None or records.backend is not backend:
            if reason := unsupported(backend, self.options):
                raise LockNotSupported("", reason)
            lease = LockOptions(backend.check_ttl(self.options.body_ttl(backend.max_ttl)), raises_loss=False)
            store = backend.task_store()
            self._records = records = RecordStore(backend, store or backend, store is not None, lease)
        return records

    @property
    def store(self) -> Store:
        """The object that performs the requests for the task's calls, see `RecordStore`."""
        return self.records.store

    def task_call(
        self, name: str, task: str, task_id: str, delivery_id: str, queued_ttl: float, done_ttl: float, prefix: str
    ) -> TaskCall:
        """Return a `TaskCall`. ``name``: the lock's name. ``prefix``: the key prefix; ``""``: the backend's."""
        mode, limit, backend = self.options.states, self.options.limit, self.records.backend
        keys = keys_for(prefix.encode() or backend.encoded_prefix, name.encode())
        is_cluster = isinstance(backend.algorithm, Cluster)
        return TaskCall(name, keys, task, task_id, delivery_id, mode, limit, queued_ttl, done_ttl, is_cluster)

    def body_lock(self, call: TaskCall) -> Lock:
        """Return the lock handle for the running body of ``call``.

        If the backend can't keep records, the handle is a mutex, or a semaphore for a ``limit`` above 1.
        """
        _, store, keeps_records, lease = self.records
        if keeps_records:
            return BodyLock(store, call, lease)
        primitive = MUTEX if call.limit == 1 else semaphore_primitive(call.limit)
        owner = {"label": call.task, "task_id": call.task_id}
        return Lock(store, primitive, call.name, call.keys, lease._replace(owner=owner))

    def cancel(self, call: TaskCall, same_delivery: bool = True) -> None:
        """Remove the queued record of a call that will not run. Errors are logged and not raised.

        ``same_delivery``: remove the record only if it has the delivery id of ``call``. While the store is unavailable,
        the removal is retried in the background for up to an hour. A mode without queued records has none.
        """
        self.drive(self.cancel_flow(call, same_delivery))

    def cancel_flow(self, call: TaskCall, same_delivery: bool = True) -> Flow[None]:
        """`cancel` as a flow, for code that has an event loop."""
        if not call.mode.at_submit:
            return
        call = call if same_delivery else call._replace(delivery_id="")
        try:
            yield from cancel(call)
        except LockUnavailable as error:
            logger.warning("task %s[%s]: its lock is released later: %s", call.task, call.task_id, error)
            store, token = self.store, cancel_token(call.task_id)
            claim = Claim(call.name, (call.keys,), token, b"", call.queued_ttl, record=call)
            until = store.clock() + min(call.queued_ttl, CANCEL_RETRY_SECONDS)
            background.schedule_release(claim.token, Orphan(store, QUEUED, claim, until), 0.5)
        except LockError as error:
            logger.warning("task %s[%s]: %s", call.task, call.task_id, error)

    def drive(self, flow: Flow[Any]) -> Any:
        """Perform the requests of ``flow`` on `store`, blocking. Returns the flow's result."""
        return drive(flow, self.store.perform)


# ── tasks that their backend does not support ────────────────────────────────────────────────────


def unsupported(backend: Backend, options: TaskOptions) -> str:
    """Return why ``backend`` does not support a task with these options; an empty text if it does."""
    has_limits = "semaphore" in backend.kinds
    if backend.task_store() is not None or (options.mode == "while_executing" and (has_limits or options.limit == 1)):
        return ""
    kept = f"store {options.using!r}: {type(backend).__name__} keeps no records of queued tasks"
    return f"{kept}: it supports while_executing{'' if has_limits else ', limit=1'}"


def refusals(tasks: Iterable[tuple[str, TaskOptions]]) -> list[str]:
    """Return a message for each task that its lock backend does not support. ``tasks``: names and options."""
    reasons = []
    for name, options in tasks:
        with suppress(Exception):  # other checks report an alias that can't be built
            if reason := unsupported(locks[options.using], options):
                reasons.append(f"task {name}: {reason}")
    return reasons


def refused_tasks() -> list[str]:
    """Return a message for each declared task that its lock backend does not support, see `refusals`.

    Imports the modules ``tasks`` of Django's apps first, so that all their tasks are declared.
    """
    # Not by Celery's loader: in a worker, that runs Django's checks and would call this function again.
    try:
        autodiscover_modules("tasks")
    except Exception as error:  # noqa: BLE001  (a worker reports it)
        logger.info("a module of tasks can't be imported, so not all tasks are checked: %r", error)
    return refusals((f"{function.__module__}.{function.__qualname__}", each) for function, each in declared.items())
