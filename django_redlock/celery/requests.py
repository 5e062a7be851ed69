"""In a worker's main process: what becomes of requests whose body can't free its lock itself."""

from __future__ import annotations

import os
import select
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from kombu.utils.imports import symbol_by_name

from ..core.events import logger
from ..errors import LockError
from .records import Ticket, bury


class Freeing:
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
            self._dying()

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """``return_ok``: the body has raised, and freed its lock; else the process is gone, or about to be killed."""
        try:
            return super().on_failure(exc_info, send_failed_event, return_ok)  # type: ignore[misc]
        finally:
            if not return_ok:
                self._dying()

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        super()._announce_revoked(reason, terminated, signum, expired)  # type: ignore[misc]
        if terminated:
            self._dying()
        else:
            self.task.redlock.forget(self._ticket(), sending=False)

    def _ticket(self) -> Ticket:
        task, request = self.task, self._context
        ticket: Ticket = task.redlock.ticket(task, self.id, task.redlock.message(task, request))
        return ticket

    def _dying(self) -> None:
        if self.worker_pid in (None, os.getpid()):
            return  # threads and solo: the body frees its lock itself
        threading.Thread(target=self._buried, name="redlock-bury", daemon=True).start()

    def _buried(self) -> None:
        """Once the process is gone: free the record, or keep it for the owner when the message comes back."""
        _wait_for_end(self.worker_pid)  # type: ignore[arg-type]
        guard, ticket = self.task.redlock, self._ticket()
        try:
            guard.drive(bury(ticket, self.worker_pid or 0))
        except LockError as error:  # the lease ends by itself
            logger.warning("task %s[%s]: %s", ticket.task, ticket.task_id, error)
        if not self._comes_back():
            guard.forget(ticket)

    def _comes_back(self) -> bool:
        return self._requeued or not self.acknowledged or self._already_cancelled


@cache
def request_class(base: Any) -> type:
    """``base`` (a class or its path), which frees locks as well."""
    return type("Request", (Freeing, symbol_by_name(base)), {})


def _wait_for_end(pid: int, timeout: float = 10.0) -> None:
    """Until the process has ended (a zombie has), ``timeout`` seconds at most."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux
        time.sleep(1.0)
        return
    try:
        select.select([handle], [], [], timeout)
    finally:
        os.close(handle)
