"""Starts all background threads. Each kind of thread has a name, a purpose and an end.

A fork waits for a thread only while it is within ``with fork.postponed:``, or in `fork.run_postponing`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of background threads. The value is the name of the thread; the comment says when the thread ends."""

    LEASES = "redlock-leases"  # two for each server: extend leases, release claims. End after 10 s without work
    REPORTS = "redlock-reports"  # calls listeners of losses and of recorded events. Ends when nothing is left
    NODE = "redlock-node"  # one for each node of a quorum: connects, probes, repeats releases. Ends without work
    CALL = "redlock-call"  # one call that may hang: a name look-up, a connect, a preparation. Ends with the call
    LEADER = "redlock-leader"  # one for each candidate of an election. Ends with its `with` block


def start(kind: Kind, work: Callable[..., object], *args: object) -> threading.Thread | None:
    """Start a daemon thread that runs ``work(*args)``, and return the thread.

    Returns ``None`` if no thread can be started, because the process has too many, or the interpreter shuts down.
    """
    if sys.is_finalizing():  # up to Python 3.11, start() would hang in `__del__`
        return None
    thread = threading.Thread(target=work, args=args, name=kind, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
