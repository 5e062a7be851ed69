"""Resets state in the child of a fork: counts forks, and calls what was registered with `on_fork`.

uWSGI forks in C, where Python runs no handlers of `os.register_at_fork`. Without the callbacks, workers that are forked
after the application was loaded would share connections and have no renewal thread. With ``--py-call-osafterfork`` or
``--py-call-uwsgi-fork-hooks`` uWSGI runs the handlers. Otherwise the post-fork hook below calls the callbacks.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

Callback = TypeVar("Callback", bound=Callable[[], object])

_pid = os.getpid()  # the process in which the callbacks have run
generation = 0  # the number of forks that led to this process; a lease of a lower number belongs to an ancestor

_functions: list[Callable[[], object]] = []
_methods: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()  # one method of each object


def on_fork(callback: Callback) -> Callback:
    """Call ``callback`` in each child of a fork. Returns ``callback``, so it works as a decorator.

    A method stays registered until its object is garbage-collected. Each object can register one method. An exception
    in a callback is logged.
    """
    if inspect.ismethod(callback):
        _methods[callback.__self__] = callback.__func__
    else:
        _functions.append(callback)
    return callback


def _in_child() -> None:
    global generation, _pid  # noqa: PLW0603  (change only between processes)
    generation += 1
    _pid = os.getpid()
    callbacks: list[Callable[[], object]] = [*_functions]
    callbacks += [partial(method, each) for each, method in list(_methods.items())]
    for callback in callbacks:
        try:
            callback()
        except Exception:
            logging.getLogger("django_redlock").exception("%r failed after a fork", callback)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


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
