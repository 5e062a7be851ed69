"""Forks that uWSGI makes: it calls C's ``fork()``, of which Python's handlers (`os.register_at_fork`) don't hear.

Workers that uWSGI forks after it has loaded the application would share connections, and have no renewal thread. With
``--py-call-osafterfork`` it tells Python itself; without, its post-fork hook does so here.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import Any

_pid = os.getpid()  # of the process for which Python's handlers have run


def _remember() -> None:
    global _pid  # noqa: PLW0603  (only between processes)
    _pid = os.getpid()


def _after_fork() -> None:
    if os.getpid() != _pid:
        ctypes.pythonapi.PyOS_AfterFork_Child()


def _hook(uwsgi: Any) -> None:
    """Be called in each worker, before what the application has registered there."""
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
    _uwsgi = importlib.import_module("uwsgi")  # there is one in its processes only
except ImportError:
    pass
else:
    os.register_at_fork(after_in_child=_remember)
    _hook(_uwsgi)
