"""The main process of a worker: removes records of revoked or expired calls, and releases locks of dead processes.

When the worker starts, it checks that the lock backends support the options of its tasks.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from celery import Celery
from celery.app.task import Context
from celery.bootsteps import Step
from celery.signals import task_revoked
from kombu.utils.imports import symbol_by_name

from ..core.events import logger
from ..core.process import fork
from ..core.process.threads import Kind, start
from ..errors import LockNotSupported
from ..single_instance.call import TaskCall
from ..single_instance.lifecycle import message_flow
from ..single_instance.protection import refusals
from ..single_instance.records import end_dead
from .postponed_messages import send

EXIT_SECONDS = 10.0  # how long a process that was killed may take to exit; later, its lock ends with the lease

# The received messages of protected tasks: those that run, or wait for their ETA, rate limit or process.
_received: WeakSet[Any] = WeakSet()


class CheckTasks(Step):
    """A step in the start of a Celery worker. It checks the options of the worker's tasks.

    Raises ``LockNotSupported``, which stops the worker, for a mode or limit that a task's lock backend does not
    support.
    """

    def create(self, parent: Any) -> None:
        app: Celery = parent.app
        tasks = ((name, task.redlock.options) for name, task in app.tasks.items() if hasattr(task, "redlock"))
        if refused := refusals(tasks):
            raise LockNotSupported("", "\n".join(refused))


@contextmanager
def _logged(task: Any, task_id: str) -> Iterator[None]:
    """Context manager that logs errors and does not raise them, so that the worker continues."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        logger.warning("task %s[%s]: its lock is not released: %r", task.name, task_id, error)


@task_revoked.connect
def _cancel_record(sender: Any, request: Any, **_: Any) -> None:
    """Remove the record of a queued call that a worker discards: the record of the first message or of a later one."""
    if hasattr(sender, "redlock"):
        with _logged(sender, request.id):
            sender.redlock.cancel(sender.redlock.received_call(sender, request), same_delivery=False)


@cache
def _replace_command() -> None:
    """Replace Celery's control command ``revoke`` with one that also removes the records of the revoked calls.

    With Celery's own command, the record of a revoked call would remain until the call's ETA.
    """
    # Imported by a worker only: an earlier import of ``celery.worker`` keeps Sentry from patching Celery's tracer.
    control: Any = import_module("celery.worker.control")
    revoked = import_module("celery.worker.state").revoked
    celerys = control.revoke

    def revoke(state: Any, task_id: Any, terminate: bool = False, signal: Any = None, **kwargs: Any) -> Any:
        """Revoke the tasks ``task_id`` (an id or a list of ids) as Celery's command does, and remove their records."""
        answer = celerys(state, task_id, terminate, signal, **kwargs)
        for request in list(_received):
            if request.id in revoked:
                _cancel_record(request.task, Context(request.request_dict))
        return answer

    control.control_command(name="revoke", variadic="task_id", signature="[id1 [id2 [... [idN]]]]")(revoke)


# ── dead processes ───────────────────────────────────────────────────────────────────────────────


class LockReleasingRequest:
    """Mixin for Celery's ``Request``: releases the task's lock when the process that runs the task has died.

    Celery calls the methods in the worker's main process.
    """

    if TYPE_CHECKING:
        id: str
        task: Any
        worker_pid: int | None
        acknowledged: bool
        request_dict: dict[str, Any]

    _requeued = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _received.add(self)

    def reject(self, requeue: bool = False) -> None:
        """Reject the message. ``requeue``: the broker delivers it again."""
        self._requeued = requeue
        super().reject(requeue=requeue)  # type: ignore[misc]

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Handle a failed task. Unless ``return_ok``, release the lock once the task's process has died."""
        try:
            return super().on_failure(exc_info, send_failed_event, return_ok)  # type: ignore[misc]
        finally:
            if not return_ok:
                self._process_dies()

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Kill the process of a running task, and release its lock. The broker delivers the message again."""
        self._requeued = True
        super().cancel(pool, signal, emit_retry)  # type: ignore[misc]

    def _process_dies(self) -> None:
        """Release the lock in a background thread after the process has exited."""
        pid = self.worker_pid
        if pid is None or pid == os.getpid():  # threads or solo: the body releases its lock itself
            return
        with _logged(self.task, self.id):
            # Makes the call, and imports and builds the backend, in the thread that forks the next child. A child that
            # is forked while another thread imports a module inherits that module's import lock.
            call = self.task.redlock.received_call(self.task, Context(self.request_dict))
            start(Kind.CALL, self._end_dead, call, pid)

    def _end_dead(self, call: TaskCall, pid: int) -> None:
        protection = self.task.redlock
        with _logged(self.task, self.id):
            exited = _wait_for_exit(pid)
            with fork.postponed:
                redelivered = self._requeued or not self.acknowledged
                if exited and (message := protection.drive(message_flow(end_dead(call, pid, redelivered)))):
                    send(self.task.app, message)
                if not redelivered:
                    protection.cancel(call)


def request_of(task: Any, base: Any) -> Any:
    """Return the class for received messages of ``task``: `request_class` of ``base`` if the task has a lock."""
    return request_class(base) if hasattr(task, "redlock") else base


@cache
def request_class(base: Any) -> type:
    """Return a subclass of ``base`` (a class or its dotted path) whose first base class is `LockReleasingRequest`."""
    _replace_command()
    return type("Request", (LockReleasingRequest, symbol_by_name(base)), {})


def _wait_for_exit(pid: int) -> bool:
    """Wait until the process ``pid`` has exited, and return whether it has. Returns ``False`` if this is unknown."""
    try:
        poll, handle = select.poll(), os.pidfd_open(pid)  # select.select() takes no file descriptor above 1023
    except ProcessLookupError:
        return True
    except (AttributeError, OSError, OverflowError):  # not Linux, eventlet, or a greenlet, whose "pid" is an address
        return False
    try:
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(EXIT_SECONDS * 1000))
    finally:
        os.close(handle)
