"""Forks: a child begins anew, and a fork waits until no background thread of ours is in the middle of its work.

A child has only the thread that forked. A mutex or an import that another thread was in the middle of stays locked in
the child for ever. So background threads work within ``with fork.postponed:``, and forks wait for the end of that:
milliseconds, and ``PATIENCE`` at most, since a store may hang (a thread that waits for an answer holds no mutex).
"""

from __future__ import annotations

import inspect
import os
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from . import uwsgi_fork  # noqa: F401  (tells Python of uWSGI's forks)
from .events import logger

Callback = TypeVar("Callback", bound=Callable[[], object])
FORK_TIMEOUT = 0.5  # seconds

generation = 0  # the number of forks that led to this process. A lease of another generation belongs to an ancestor.


class ForkGuard:
    """A context for work that must not be cut in half by a fork. Reentrant; work of many threads goes on side by side.

    Work does not begin while another thread forks.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # reentrant: a signal's handler may fork, or use a lock
        self._changed = threading.Condition(self._mutex)
        self._working: Counter[int] = Counter()  # thread -> depth
        self._forks = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._mutex:
            if self._forks and not self._working[me]:
                self._changed.wait_for(lambda: not self._forks, FORK_TIMEOUT)
            self._working[me] += 1

    def __exit__(self, *error: object) -> None:
        me = threading.get_ident()
        with self._mutex:
            self._working[me] -= 1
            if not self._working[me]:
                del self._working[me]
                if self._forks:
                    self._changed.notify_all()

    def before(self) -> None:
        """Keep new work from starting, and wait until the work of all other threads has ended: ``PATIENCE`` at most."""
        me = threading.get_ident()
        with self._mutex:
            self._forks += 1
            self._changed.wait_for(lambda: not self._working.keys() - {me}, FORK_TIMEOUT)

    def after(self) -> None:
        """In the parent: go on."""
        with self._mutex:
            self._forks = max(0, self._forks - 1)  # a server in C may fork without a word beforehand
            self._changed.notify_all()


postponed = ForkGuard()


def run(work: Callable[..., object], *args: object) -> None:
    """The target of a thread: the work, and forks wait for it."""
    with postponed:
        work(*args)


_functions: list[Callable[[], object]] = []
_methods: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()  # one of each object


def on_fork(callback: Callback) -> Callback:
    """Register ``callback`` for each child of a fork.

    A method is registered until its object is garbage-collected. An object can register one method.
    """
    if inspect.ismethod(callback):
        _methods[callback.__self__] = callback.__func__
    else:
        _functions.append(callback)
    return callback


def _in_child() -> None:
    global generation  # noqa: PLW0603  (the one thing here that changes, and only between processes)
    generation += 1
    postponed.__init__()  # type: ignore[misc]  # the threads that were at work are the parent's
    callbacks: list[Callable[[], object]] = [*_functions]
    callbacks += [partial(method, each) for each, method in list(_methods.items())]
    for callback in callbacks:
        try:
            callback()
        except Exception:
            logger.exception("%r failed after a fork", callback)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=postponed.before, after_in_parent=postponed.after, after_in_child=_in_child)
