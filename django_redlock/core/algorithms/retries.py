"""Requests that are repeated: after a pooled connection was closed, while no server serves, and after a refusal."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ..flow.replies import fault_error
from ..flow.requests import Batch, Block, EvalAndWait, EvalScript, Fault, Flow, Sleep
from ..primitives.base import Primitive
from ..values import Claim, Wait

FAILOVER_SECONDS = 30.0  # how long a waiter retries a store that does not reply, since it may fail over
RETRY_SECONDS = 0.05, 0.2  # pause between two such tries, drawn at random
MOVING_TRIES = 8  # tries of a request for keys that a Cluster is moving
MIN_WAIT_SECONDS = 0.05  # with less time left, a refused client does not queue again


def run_idempotent(run: EvalScript | EvalAndWait, fault: Fault | None = None) -> Flow[Any]:
    """Run a script, and once more if the pooled connection was closed. ``fault``: the reply if it was sent before."""
    reply = fault or (yield run)
    if isinstance(reply, Fault) and reply.stale:
        first, reply = reply, (yield run)
        if isinstance(reply, Fault) and first.unconfirmed:  # the first request may have been carried out
            reply = reply._replace(unconfirmed=True)
    return reply


def release_lost(primitive: Primitive, lost: list[Claim]) -> Flow[None]:
    """Release the attempts in ``lost``, which may have been granted although no reply has arrived.

    Otherwise a later attempt of the same ``acquire()`` would wait for its own lock. Each attempt is released by its own
    token, because a late release must not end a later attempt. Attempts whose release fails stay in ``lost``.
    """
    replies = (yield Batch([primitive.release_request(each) for each in lost])) if lost else ()
    lost[:] = [each for each, reply in zip(lost, replies, strict=True) if isinstance(reply, Fault)]


def run_while_moving(run: EvalScript) -> Flow[Any]:
    """Run a script, and repeat it for about a second while a Cluster moves its keys, since it refuses it meanwhile."""
    for _ in range(MOVING_TRIES):
        reply = yield from run_idempotent(run)
        if not (isinstance(reply, Fault) and reply.migrating):
            break
        yield Sleep(random.uniform(*RETRY_SECONDS))
    return reply


def retry_until_served(
    clock: Callable[[], float], deadline: float, reply: Any, again: Callable[[], Flow[Any]]
) -> Flow[Any]:
    """Repeat a request while its reply is a transient `Fault` (failover, quarantine), and return the last reply.

    Stops at ``deadline`` (monotonic seconds), or after `FAILOVER_SECONDS` if that is earlier. Waits longer for the end
    of a quarantine, but stops at once if the quarantine ends after ``deadline``.
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


def block(name: str, signal: Block, left: float) -> Flow[None]:
    """Wait for a wake-up, or pause for 0.05 seconds, but at most ``left``, if the blocking request fails.

    Raises ``LockError`` if the server refuses the blocking command: no permission, or a key of another type.
    """
    reply = yield signal
    if isinstance(reply, Fault):
        if reply.refused and not reply.transient:
            raise fault_error(name, reply)
        yield Sleep(min(left, RETRY_SECONDS[0]))


def must_requeue(wait: Wait, left: float) -> bool:
    """Return whether a refused client must queue again: it is no longer listed as a waiter, but time is left.

    `Wait.LAST_TRY` may have been sent early because of a wake-up. ``left``: seconds until the deadline.
    """
    return wait is Wait.LAST_TRY and left > MIN_WAIT_SECONDS
