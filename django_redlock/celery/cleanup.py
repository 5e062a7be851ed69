"""In a worker's main process: what becomes of requests whose body can't free its lock itself."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from kombu.utils.imports import symbol_by_name

from ..core import fork
from ..core.events import logger
from . import revoke
from .records import TaskCall, requeue_dead


class LockReleasingRequest:
    """Frees the lock of a task that can't do so itself: its process died, or its message was discarded."""

    if TYPE_CHECKING:
        id: str
        task: Any
        worker_pid: int | None
        acknowledged: bool
        _context: Any
        _already_cancelled: bool

    _requeued = False

    def reject(self, requeue: bool = False) -> None:
        """Whether the message comes back decides what becomes of the record."""
        self._requeued = requeue
        super().reject(requeue=requeue)  # type: ignore[misc]

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """A hard time limit: Celery calls this, and then kills the process."""
        super().on_timeout(soft, timeout)  # type: ignore[misc]
        if not soft:
            self._process_dies()

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """``return_ok``: the body has raised, and freed its lock; else the process is gone, or about to be killed."""
        try:
            return super().on_failure(exc_info, send_failed_event, return_ok)  # type: ignore[misc]
        finally:
            if not return_ok:
                self._process_dies()

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        super()._announce_revoked(reason, terminated, signum, expired)  # type: ignore[misc]
        if terminated:
            self._process_dies()
        else:
            self.cancel_record()

    def cancel_record(self) -> None:
        with self._not_freed():
            self.task.redlock.cancel(self._call(), same_delivery=False)

    def _call(self) -> TaskCall:
        task, request = self.task, self._context
        ticket: TaskCall = task.redlock.new_call(task, self.id, task.redlock.message(task, request))
        return ticket

    def _process_dies(self) -> None:
        if self.worker_pid == os.getpid():  # threads or solo: the body frees its lock itself
            return
        with self._not_freed():
            # Imports and builds the backend, in the thread that forks the next child: that would inherit the lock of a
            # module which another thread is importing.
            ticket = self._call()
            threading.Thread(target=self._release_dead, args=(ticket,), name="redlock-bury", daemon=True).start()

    def _release_dead(self, ticket: TaskCall) -> None:
        """Once the process is gone: free the record, or keep it for the owner when the message comes back.

        A process that goes on (it was sent a signal that doesn't kill) frees its lock itself.
        """
        guard = self.task.redlock
        with self._not_freed():
            dead = self.worker_pid if self.worker_pid is not None and _wait_for_exit(self.worker_pid) else None
            with fork.postponed:
                if dead is not None:
                    guard.drive(requeue_dead(ticket, dead))
                if not self._will_be_redelivered():
                    guard.cancel(ticket)

    @contextmanager
    def _not_freed(self) -> Iterator[None]:
        """Say what goes wrong, a message without arguments that fit, say: the lease ends by itself."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  (whatever it is: the worker goes on)
            logger.warning("task %s[%s]: its lock is not freed: %r", self.task.name, self.id, error)

    def _will_be_redelivered(self) -> bool:
        return self._requeued or not self.acknowledged or self._already_cancelled


@cache
def request_class(base: Any) -> type:
    """``base`` (a class or its path), which frees locks as well."""
    revoke.install(LockReleasingRequest)
    return type("Request", (LockReleasingRequest, symbol_by_name(base)), {})


def _wait_for_exit(pid: int, timeout: float = 10.0) -> bool:
    """Wait for the process to end (a zombie has), ``timeout`` seconds at most; whether it has."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OverflowError:  # a greenlet: Celery gives its address for a process id
        return False
    except (AttributeError, OSError):  # not Linux
        return _gone(pid, timeout)
    try:
        return bool(select.select([handle], [], [], timeout)[0])
    finally:
        os.close(handle)


def _gone(pid: int, timeout: float) -> bool:
    """The same by asking, where a zombie counts only once the pool has collected it."""
    for _ in range(int(timeout * 10)):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
