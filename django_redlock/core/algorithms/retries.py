"""Requests that are repeated: after a pooled connection was closed, and while no server serves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from ..flow.requests import EvalAndWait, EvalScript, Fault, Flow, Sleep

FAILOVER_SECONDS = 30.0  # how long a waiter retries a store that does not reply, since it may fail over
RETRY_SECONDS = 0.05, 0.2  # pause between two such tries, drawn at random


def run_idempotent(run: EvalScript | EvalAndWait) -> Flow[Any]:
    """Run a script. If the pooled connection was closed, run the script again: scripts are idempotent."""
    reply = yield run
    if isinstance(reply, Fault) and reply.stale:
        reply = yield run
    return reply


def run_in_order(runs: Iterable[EvalScript]) -> Flow[Any]:
    """Run scripts one after another. Returns the reply to the last script, or the first `Fault`, which ends the run."""
    reply = None
    for run in runs:
        reply = yield from run_idempotent(run)
        if isinstance(reply, Fault):
            break
    return reply


def retry_until_served(
    clock: Callable[[], float], deadline: float, reply: Any, again: Callable[[], Flow[Any]]
) -> Flow[Any]:
    """Repeat a request while its reply is a transient `Fault` (failover, quarantine), and return the last reply.

    ``reply``: the first reply. ``again``: returns a flow that sends the request once more and returns the reply. Stops
    at ``deadline`` (monotonic seconds), or after `FAILOVER_SECONDS` if that is earlier. Waits longer for the end of a
    quarantine, but stops at once if the quarantine ends after ``deadline``.
    """
    until = clock() + FAILOVER_SECONDS
    while isinstance(reply, Fault) and reply.transient:
        until = max(until, clock() + reply.retry_after + RETRY_SECONDS[1]) if reply.retry_after else until
        left = min(deadline, until) - clock()
        if left <= reply.retry_after:
            break
        yield Sleep(min(left, max(reply.retry_after, random.uniform(*RETRY_SECONDS))))
        reply = yield from again()
    return reply
