"""Releases the locks of dead processes and discarded messages, in the worker's main process."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from celery.app.task import Context
from kombu.utils.imports import symbol_by_name

from ..core.events import logger
from ..core.process import fork
from ..core.process.threads import Kind, start
from ..single_instance.body_flow import message_flow
from ..single_instance.call import TaskCall
from ..single_instance.transitions import requeue_dead
from . import revoke
from .put_off import end_delivery, send


class LockReleasingRequest:
    """Mixin for Celery's ``Request``, a received message in the worker's main process.

    It releases the task's lock when the process of the body has died or the message was discarded.
    """

    if TYPE_CHECKING:
        id: str
        task: Any
        worker_pid: int | None
        time_start: float | None
        acknowledged: bool
        request_dict: dict[str, Any]

    _requeued = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        revoke.received.add(self)

    def reject(self, requeue: bool = False) -> None:
        """Reject the message, and remember whether the broker will deliver it again (``requeue``). Called by Celery."""
        self._requeued = requeue
        super().reject(requeue=requeue)  # type: ignore[misc]

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Handle an exceeded time limit. Called by Celery.

        After a hard limit (``soft`` is false), Celery kills the process when this method has returned. A background
        thread waits for the end of the process, and releases the lock. ``timeout``: the limit in seconds.
        """
        super().on_timeout(soft, timeout)  # type: ignore[misc]
        if not soft:
            self._process_dies()

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Handle a failed task. Called by Celery.

        ``return_ok``: whether the process of the body has returned the body's error. Otherwise the process is dead or
        about to be killed, and a background thread releases the lock. Returns the result of Celery's method.
        """
        try:
            return super().on_failure(exc_info, send_failed_event, return_ok)  # type: ignore[misc]
        finally:
            if not return_ok:
                self._process_dies()

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Kill the process of a revoked call. Called by Celery, again when a call that was waiting has started."""
        super().terminate(pool, signal)  # type: ignore[misc]
        if self.time_start:
            self._process_dies()

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Kill the process of a call whose message the broker will deliver again. Called by Celery."""
        self._requeued = True
        super().cancel(pool, signal, emit_retry)  # type: ignore[misc]

    def revoked(self) -> bool:
        """Return whether the call is revoked or has expired, and so is discarded. Called by Celery before the start."""
        if discarded := bool(super().revoked()):  # type: ignore[misc]
            self.cancel_record()
        return discarded

    def cancel_record(self) -> None:
        """Remove the record of the queued task from the lock store, even if it belongs to another delivery.

        Errors are logged.
        """
        with self._logged():
            self.task.redlock.cancel(self._received_call(), same_delivery=False)

    def _received_call(self) -> TaskCall:
        call: TaskCall = self.task.redlock.received_call(self.task, Context(self.request_dict))
        return call

    def _process_dies(self) -> None:
        """Release the call's lock when the body's process is dead, in a background thread.

        Unless the message will be redelivered, the call is over. The store refuses all copies of the message from now
        on, also those that the end of the process wakes.
        """
        if self.worker_pid == os.getpid():  # threads or solo: the body releases its lock itself
            return
        with self._logged():
            # This imports and builds the backend here, in the thread that forks the next child. A child that is forked
            # while another thread imports a module inherits that module's import lock.
            call = self._received_call()
            if not self._will_be_redelivered():
                end_delivery(self.task, call)
            start(Kind.CALL, self._requeue_dead, call, postpones_forks=False)

    def _requeue_dead(self, call: TaskCall) -> None:
        """Wait for the body's process to exit, and then release the call's lock.

        If the message will be redelivered, the call counts as queued again, otherwise its record is removed. If the
        process survives the signal that should end it, it releases the lock itself.
        """
        task_lock = self.task.redlock
        with self._logged():
            dead = self.worker_pid if self.worker_pid is not None and _wait_for_exit(self.worker_pid) else None
            with fork.postponed:
                redelivered = self._will_be_redelivered()
                if dead is not None:
                    message = task_lock.drive(message_flow(requeue_dead(call, dead, redelivered)))
                    send(self.task.app, message)
                if not redelivered:
                    task_lock.cancel(call)

    @contextmanager
    def _logged(self) -> Iterator[None]:
        """Context manager that logs errors and does not raise them. After an error, the lock stays held for its ttl.

        An error occurs, for example, when the arguments of a message don't fit the task.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001  (the worker must go on)
            logger.warning("task %s[%s]: its lock is not released: %r", self.task.name, self.id, error)

    def _will_be_redelivered(self) -> bool:
        return self._requeued or not self.acknowledged


def request_of(task: Any, base: Any) -> Any:
    """Return the class of the received messages of ``task``: `request_class` of ``base`` if the task has a lock."""
    return request_class(base) if hasattr(task, "redlock") else base


@cache
def request_class(base: Any) -> type:
    """Return a subclass of ``base`` (a class or its dotted path) whose first base class is `LockReleasingRequest`.

    Also makes the worker's revoke commands remove the records of revoked calls.
    """
    revoke.install()
    return type("Request", (LockReleasingRequest, symbol_by_name(base)), {})


def _wait_for_exit(pid: int, timeout: float = 10.0) -> bool:
    """Wait up to ``timeout`` seconds for the process ``pid`` to exit. Returns whether it has exited.

    On Linux, a zombie counts as exited. Returns ``False`` for a greenlet, whose ``pid`` is an address.
    """
    try:
        poll, handle = select.poll(), os.pidfd_open(pid)  # select.select() takes no file descriptor above 1023
    except ProcessLookupError:
        return True
    except OverflowError:  # a greenlet, for which Celery gives its address as the process id
        return False
    except (AttributeError, OSError):  # not Linux, or patched by eventlet, which removes poll()
        return _gone(pid, timeout)
    try:
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(timeout * 1000))
    finally:
        os.close(handle)


def _gone(pid: int, timeout: float) -> bool:
    """Poll for up to ``timeout`` seconds until the process ``pid`` has exited. Returns whether it has exited.

    A zombie counts as running until its parent has collected it.
    """
    for _ in range(int(timeout * 10)):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
