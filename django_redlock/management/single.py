"""`SingleInstanceCommand`: a management command that runs once at a time, on whatever host it is started."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from ..core.owner import Owner
from ..errors import LockError, LockNotAcquired, LockUnavailable
from ..formatting import age, duration
from ..handler import DEFAULT_ALIAS, locks
from ..shortcuts import lock

ALREADY_RUNNING, STORE_DOWN = 75, 69  # EX_TEMPFAIL and EX_UNAVAILABLE of sysexits.h, as redlock_run has them


class SingleInstanceCommand(BaseCommand):
    """A command that does not start while it runs elsewhere: it says where, and ends with exit code 75.

    ``lock_name`` (default: ``command:`` and the command's name), ``lock_using`` (the store) and ``lock_options`` (of
    ``lock()``; it does not wait unless ``blocking_timeout`` says so) may be set in the class; ``get_lock_name`` may
    make the name from the options. In ``handle`` the lock is ``self.lock``. A store that can't be asked ends it with
    exit code 69. When the lock is lost meanwhile, ``self.lock.check()`` raises, and the end of the command does.
    SIGTERM and SIGHUP end it with ``SystemExit``, so that the lock is released; exit code 143 or 129.
    """

    lock_name: ClassVar[str] = ""
    lock_using: ClassVar[str] = DEFAULT_ALIAS
    lock_options: ClassVar[dict[str, Any]] = {}

    def get_lock_name(self, **options: Any) -> str:
        """The lock's name for a call with these options."""
        return self.lock_name or f"command:{type(self).__module__.rpartition('.')[2]}"

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run under the lock. Raises ``CommandError`` when it can't be had, ``LockLost`` when it was lost."""
        owner = {"command": " ".join(sys.argv)[:200]}
        terms = {"blocking_timeout": 0, "owner": owner, **self.lock_options}
        try:
            self.lock = lock(self.get_lock_name(**options), using=self.lock_using, **terms)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        with ended_in_order(), contextlib.ExitStack() as holding:
            try:
                holding.enter_context(self.lock)
            except LockNotAcquired as error:
                raise CommandError(self._already_running(error), returncode=ALREADY_RUNNING) from error
            except LockUnavailable as error:
                raise CommandError(str(error), returncode=STORE_DOWN) from error
            result: str | None = super().execute(*args, **options)
        return result

    def _already_running(self, error: LockNotAcquired) -> str:
        try:
            held = locks[self.lock_using].describe(error.name)
        except LockError:
            held = None
        return already_running(held.owner) if held else already_running(Owner.parse(error.holder))


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Where nobody else handles them, SIGTERM and SIGHUP raise ``SystemExit`` in the block, the first time."""
    ending: list[int] = []

    def end(number: int, _frame: Any) -> None:
        if not ending:  # a second one would interrupt the release
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


def already_running(owner: Owner) -> str:
    """``already running on host X, pid Y, for 3 min``, as far as it is known."""
    where = f" on host {owner.host}, pid {owner.pid}" if owner.host else ""
    seconds = age(owner)
    return f"already running{where}{f', for {duration(seconds)}' if seconds is not None else ''}"
