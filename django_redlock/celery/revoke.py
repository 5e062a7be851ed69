"""Removes the records of revoked calls from the lock store as soon as a worker gets the command ``revoke``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any
from weakref import WeakSet

# The received messages of protected tasks in a worker's main process: those that run, or wait for their ETA, rate limit
# or process.
received: WeakSet[Any] = WeakSet()


@cache
def install() -> None:
    """Register a command ``revoke`` in place of Celery's. It calls Celery's, and cancels the revoked calls.

    Without it, a call that waits for its ETA would keep its record until a worker discards it, at its ETA.
    """
    # Imported by a worker only: an earlier import of ``celery.worker`` keeps Sentry from patching Celery's tracer.
    control: Any = import_module("celery.worker.control")
    revoked = import_module("celery.worker.state").revoked
    celerys = control.revoke

    def revoke(state: Any, task_id: Any, terminate: bool = False, signal: Any = None, **kwargs: Any) -> Any:
        """Revoke the tasks ``task_id`` (an id or a list of ids) as Celery's command does, and remove their records."""
        answer = celerys(state, task_id, terminate, signal, **kwargs)
        for request in list(received):
            if request.id in revoked:
                request.cancel_record()
        return answer

    control.control_command(name="revoke", variadic="task_id", signature="[id1 [id2 [... [idN]]]]")(revoke)
