"""Forks: a fork waits for background threads, and the child runs the callbacks registered with `on_fork`.

A child has only the thread that forked. A mutex or an import lock that another thread held stays locked in the child
forever. So background threads work within ``with fork.postponed:``, and a fork waits until these blocks have ended. The
wait takes milliseconds. If a store hangs, the fork continues after ``FORK_TIMEOUT``, which is safe, because a thread
that waits for a reply holds no mutex.

uWSGI forks in C, where Python runs no handlers of `os.register_at_fork`. Without the callbacks, workers that are forked
after the application was loaded would share connections and have no renewal thread. With ``--py-call-osafterfork`` or
``--py-call-uwsgi-fork-hooks`` uWSGI runs the handlers. Otherwise `_hook` registers a post-fork hook that calls the
callbacks.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .mutex import free_in_child, new_mutex

Callback = TypeVar("Callback", bound=Callable[[], object])

_pid = os.getpid()  # the process in which the callbacks have run
FORK_TIMEOUT = 0.5  # seconds
generation = 0  # the number of forks that led to this process; a lease of a lower number belongs to an ancestor

_functions: list[Callable[[], object]] = []
_methods: WeakKeyDictionary[Any, list[Callable[[Any], object]]] = WeakKeyDictionary()  # by object


def on_fork(callback: Callback) -> Callback:
    """Call ``callback`` in each child of a fork. Returns ``callback``, so it works as a decorator.

    A method stays registered until its object is garbage-collected. An exception in a callback is logged.
    """
    if inspect.ismethod(callback):
        _methods.setdefault(callback.__self__, []).append(callback.__func__)
    else:
        _functions.append(callback)
    return callback


class ForkGuard:
    """A context manager for work that a fork must not interrupt.

    The guard is reentrant, and several threads may be inside. A thread that enters while another thread forks waits for
    the end of the fork, at most ``FORK_TIMEOUT``.
    """

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self.reset()

    def reset(self) -> None:
        """Clear the threads inside. Called in the child of a fork, which has none of them."""
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
            if self._working[me] <= 0:  # below 0: the block has forked, and this is the child
                del self._working[me]
                if self._forks:
                    self._changed.notify_all()

    def before(self) -> None:
        """Prepare a fork: let no thread enter this guard, and wait until all other threads have left it.

        Waits at most ``FORK_TIMEOUT`` (0.5 seconds).
        """
        me = threading.get_ident()
        with self._mutex:
            self._forks += 1
            self._changed.wait_for(lambda: not self._working.keys() - {me}, FORK_TIMEOUT)

    def after(self) -> None:
        """Let threads enter this guard again. Called in the parent process after a fork."""
        with self._mutex:
            self._forks = max(0, self._forks - 1)  # a fork from C code may have skipped `before`
            self._changed.notify_all()


postponed = ForkGuard()


def run_postponing(work: Callable[..., object], *args: object) -> None:
    """Call ``work(*args)`` in a short background thread. A fork waits for the end of the call."""
    with postponed:
        work(*args)


def _in_child() -> None:
    global generation, _pid  # noqa: PLW0603  (change only between processes)
    generation += 1
    _pid = os.getpid()
    free_in_child()
    postponed.reset()
    callbacks: list[Callable[[], object]] = [*_functions]
    callbacks += [partial(method, each) for each, methods in list(_methods.items()) for method in methods]
    for callback in callbacks:
        try:
            callback()
        except Exception:
            logging.getLogger("django_redlock").exception("%r failed after a fork", callback)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=postponed.before, after_in_parent=postponed.after, after_in_child=_in_child)


# ── uWSGI ────────────────────────────────────────────────────────────────────────────────────────


def _after_fork() -> None:
    if os.getpid() != _pid:
        _in_child()


def _hook(uwsgi: Any) -> None:
    """Make uWSGI call the callbacks in each worker, before the post-fork functions of the application."""
    decorators = sys.modules.get("uwsgidecorators")
    if decorators is not None:
        decorators.postfork_chain.insert(0, _after_fork)
        return
    earlier = getattr(uwsgi, "post_fork_hook", None)

    def hook() -> None:
        _after_fork()
        if earlier is not None:
            earlier()

    uwsgi.post_fork_hook = hook


try:
    _uwsgi = importlib.import_module("uwsgi")  # exists only in processes of uWSGI
except ImportError:
    pass
else:
    _hook(_uwsgi)
