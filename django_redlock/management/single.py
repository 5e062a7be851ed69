"""`SingleInstanceCommand`: base class of a management command that runs in one process at a time, on all hosts."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from ..backend_registry import DEFAULT_ALIAS
from ..core.owner import Owner
from ..core.values import Seconds
from ..errors import LockNotAcquired, LockUnavailable
from ..formatting import age, duration, printable, state_of
from ..shortcuts import lock

ALREADY_RUNNING, STORE_DOWN = 75, 69  # EX_TEMPFAIL and EX_UNAVAILABLE of sysexits.h, also used by redlock_run


class SingleInstanceCommand(BaseCommand):
    """A management command that runs under a lock. If the lock is held, it prints the holder and exits with code 75.

    The lock excludes other processes on all hosts that use the same store.

    - ``lock_name`` (``command:`` and the command's name): name of the lock. Override ``get_lock_name`` for a name that
      depends on the command's options.
    - ``lock_using`` ("default"): the alias of the store.
    - ``lock_options`` (``{}``): options of ``lock()``. Without ``blocking_timeout`` the command doesn't wait.
    - ``every`` (``None``): the command starts at most once in this time, in seconds or as a ``timedelta``.

    ``handle`` can use the lock as ``self.lock``.

    If the store does not reply, the exit code is 69. If the lock is lost while the command runs,
    ``self.lock.check()`` and the end of the command raise ``LockLost``. SIGTERM and SIGHUP raise ``SystemExit``, so
    that the lock is released; the exit code is 143 or 129.
    """

    lock_name: ClassVar[str] = ""
    lock_using: ClassVar[str] = DEFAULT_ALIAS
    lock_options: ClassVar[dict[str, Any]] = {}
    every: ClassVar[Seconds | None] = None

    def get_lock_name(self, **options: Any) -> str:
        """Return the lock's name for a call with these options."""
        return self.lock_name or f"command:{type(self).__module__.rpartition('.')[2]}"

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command under the lock.

        Raises ``CommandError`` when the lock is not acquired, ``LockLost`` when the lock was lost before the end.
        """
        owner = {"command": " ".join(sys.argv)[:200]}
        terms = {"owner": owner, "every": self.every, **self.lock_options}
        if terms.get("blocking", True):
            terms.setdefault("blocking_timeout", 0)
        try:
            self.lock = lock(self.get_lock_name(**options), using=self.lock_using, **terms)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        with ended_in_order(), contextlib.ExitStack() as holding:
            try:
                holding.enter_context(self.lock)
            except LockNotAcquired as error:
                sentence = already_running(error.holder or Owner(), error.retry_after)
                raise CommandError(sentence, returncode=ALREADY_RUNNING) from error
            except LockUnavailable as error:
                raise CommandError(str(error), returncode=STORE_DOWN) from error
            result: str | None = super().execute(*args, **options)
        return result


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Context manager in which the first SIGTERM or SIGHUP raises ``SystemExit`` with code 128 + the signal's number.

    A signal that already has a handler keeps its handler. In a thread other than the main thread, no handler is set.
    """
    ending: list[int] = []

    def end(number: int, _frame: Any) -> None:
        if not ending:  # a second SystemExit would interrupt the release
            ending.append(number)
            raise SystemExit(128 + number)

    free = threading.current_thread() is threading.main_thread()
    taken = [each for each in (signal.SIGTERM, signal.SIGHUP) if free and signal.getsignal(each) is signal.SIG_DFL]
    for each in taken:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in taken:
            if signal.getsignal(each) is end:
                signal.signal(each, signal.SIG_DFL)


def already_running(owner: Owner, remaining: float | None = None) -> str:
    """Return text such as ``already running on host X, pid Y, for 3 min``, without the parts that are unknown.

    For a lock with ``every=`` whose work is done, the text is ``done on host X, pid Y, again in 4 h``. ``remaining``:
    seconds until the lock ends or the work may start again; ``None`` if unknown.
    """
    where = f" on host {printable(owner.host)}, pid {owner.pid}" if owner.host else ""
    if state_of(owner) == "done" and remaining is not None:
        return f"done{where}, again in {duration(remaining)}"
    seconds = age(owner)
    return f"already running{where}{f', for {duration(seconds)}' if seconds is not None else ''}"
