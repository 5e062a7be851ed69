"""A worker's main process: checks the tasks at its start, and removes the records of calls that are not run.

These are calls that are revoked or have expired.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any
from weakref import WeakSet

from celery import Celery
from celery.app.task import Context
from celery.bootsteps import Step
from celery.signals import task_received, task_revoked

from ..core.events import logger
from ..errors import LockNotSupported
from ..single_instance.task_lock import refusals

# The received messages of protected tasks: those that run, or wait for their ETA, rate limit or process.
_received: WeakSet[Any] = WeakSet()


class CheckTasks(Step):
    """A step in the start of a Celery worker.

    Raises ``LockNotSupported``, which ends the start, if one of the worker's tasks has a mode or limit that its lock
    backend does not support.
    """

    def create(self, parent: Any) -> None:
        app: Celery = parent.app
        tasks = ((name, task.redlock.options) for name, task in app.tasks.items() if hasattr(task, "redlock"))
        if refused := refusals(tasks):
            raise LockNotSupported("", "\n".join(refused))


@task_revoked.connect
def _cancel_record(sender: Any, request: Any, **_: Any) -> None:
    """Remove the record of a queued call that a worker discards, even if it belongs to another delivery.

    A receiver of a signal. Errors are logged, for example when the arguments of a message don't fit the task.
    """
    if not hasattr(sender, "redlock"):
        return
    try:
        sender.redlock.cancel(sender.redlock.received_call(sender, request), same_delivery=False)
    except Exception as error:  # noqa: BLE001  (the worker must go on)
        logger.warning("task %s[%s]: its lock is not released: %r", sender.name, request.id, error)


@task_received.connect
def _remember(request: Any, **_: Any) -> None:
    if hasattr(request.task, "redlock"):
        _replace_command()
        _received.add(request)


@cache
def _replace_command() -> None:
    """Register a command ``revoke`` in place of Celery's. It calls Celery's, and removes the records of revoked calls.

    Without it, a call that waits for its ETA would keep its record until a worker discards it, at its ETA.
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
