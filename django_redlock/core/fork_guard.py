"""Delays a fork while background threads work, because a child has only the thread that forked.

A mutex or an import lock that another thread held stays locked in the child forever. So background threads work within
``with fork_guard.postponed:``, and a fork waits until these blocks have ended. The wait takes milliseconds. If a store
hangs, the fork goes on after ``FORK_TIMEOUT``, which does no harm, because a thread that waits for a reply holds no
mutex.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable

from . import fork
from .thread_mutex import new_mutex

FORK_TIMEOUT = 0.5  # seconds


class ForkGuard:
    """A context manager for work that a fork must not interrupt.

    The guard is reentrant, and many threads may be inside at once. A thread that enters while another thread forks
    waits for the end of the fork, ``FORK_TIMEOUT`` at most.
    """

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._changed = threading.Condition(self._mutex)
        self._working: Counter[int] = Counter()  # thread -> depth
        self._forks = 0

    def __enter__(self) -> None:
        self.enter()

    def enter(self, caller: int = 0) -> None:
        """Enter the guard. Waits for the end of a fork first, ``FORK_TIMEOUT`` at most.

        ``caller``: the id of a thread that waits for this thread; 0 for none. If that thread is inside, this thread
        enters at once: the fork waits for ``caller``, so a wait for the fork would be a deadlock.
        """
        me = threading.get_ident()
        with self._mutex:
            if self._forks and not (self._working[me] or self._working[caller]):
                self._changed.wait_for(lambda: not self._forks, FORK_TIMEOUT)
            self._working[me] += 1

    def __exit__(self, *error: object) -> None:
        me = threading.get_ident()
        with self._mutex:
            self._working[me] -= 1
            if self._working[me] <= 0:  # below 0: the block has forked, and this is the child
                del self._working[me]
                if self._forks:
                    self._changed.notify_all()

    def before(self) -> None:
        """Prepare a fork: let no thread enter this guard, and wait until all other threads have left it.

        Waits ``FORK_TIMEOUT`` (0.5 seconds) at most.
        """
        me = threading.get_ident()
        with self._mutex:
            self._forks += 1
            self._changed.wait_for(lambda: not self._working.keys() - {me}, FORK_TIMEOUT)

    def after(self) -> None:
        """Let threads enter this guard again. Runs in the parent process after a fork."""
        with self._mutex:
            self._forks = max(0, self._forks - 1)  # a fork from C code may have skipped `before`
            self._changed.notify_all()


postponed = ForkGuard()


def run(work: Callable[..., object], *args: object, caller: int = 0) -> None:
    """Call ``work(*args)`` so that forks wait for its end. Background threads use this function as their target.

    ``caller``: the id of a thread that waits for ``work``, see `ForkGuard.enter`.
    """
    postponed.enter(caller)
    try:
        work(*args)
    finally:
        postponed.__exit__()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=postponed.before, after_in_parent=postponed.after)
fork.on_fork(postponed.__init__)  # type: ignore[misc]  # the child has none of the threads inside
