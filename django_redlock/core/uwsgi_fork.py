"""Runs the handlers of `os.register_at_fork` in uWSGI workers, because uWSGI forks in C, where Python runs no handlers.

Without the handlers, workers that are forked after the application was loaded would share connections and have no
renewal thread. With ``--py-call-osafterfork`` uWSGI runs the handlers. Otherwise the post-fork hook below runs them.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import Any

_pid = os.getpid()  # the process in which the handlers have run


def _store_pid() -> None:
    global _pid  # noqa: PLW0603  (only between processes)
    _pid = os.getpid()


def _after_fork() -> None:
    if os.getpid() != _pid:
        ctypes.pythonapi.PyOS_AfterFork_Child()


def _hook(uwsgi: Any) -> None:
    """Make uWSGI run the fork handlers in each worker, before the post-fork functions of the application."""
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
    os.register_at_fork(after_in_child=_store_pid)
    _hook(_uwsgi)
