"""Repeats requests after a pooled connection was closed, while a Cluster moves keys, or after a refusal."""

from __future__ import annotations

import random
from typing import Any

from ..flow.requests import Batch, EvalAndWait, EvalScript, Fault, Flow, Sleep
from ..primitives.base import Primitive
from ..values import Claim, Wait

RETRY_SECONDS = 0.05, 0.2  # pause between two tries while a store does not serve, drawn at random
MOVING_TRIES = 8  # tries of a request for keys that a Cluster is moving
MIN_WAIT_SECONDS = 0.05  # with less time left, a refused client does not queue again


def run_idempotent(call: EvalScript | EvalAndWait, fault: Fault | None = None) -> Flow[Any]:
    """Run a script, and repeat it once if the pooled connection was closed. ``fault``: the reply to an earlier run."""
    reply = fault or (yield call)
    if isinstance(reply, Fault) and reply.stale:
        first, reply = reply, (yield call)
        if isinstance(reply, Fault) and first.unconfirmed:  # the first request may have been carried out
            reply = reply._replace(unconfirmed=True)
    return reply


def release_unconfirmed(primitive: Primitive, unconfirmed: list[Claim]) -> Flow[None]:
    """Release the attempts in ``unconfirmed``, which may have been granted, but whose replies were lost.

    Otherwise a later attempt of the same ``acquire()`` would wait for its own lock. Each attempt is released by its own
    token, because a late release must not end a later attempt. Attempts whose release fails stay in ``unconfirmed``.
    """
    replies = (yield Batch([primitive.release_request(each) for each in unconfirmed])) if unconfirmed else ()
    unconfirmed[:] = [each for each, reply in zip(unconfirmed, replies, strict=True) if isinstance(reply, Fault)]


def run_while_moving(call: EvalScript) -> Flow[Any]:
    """Run a script. While a Cluster moves its keys and refuses the script, repeat it for about a second."""
    for _ in range(MOVING_TRIES):
        reply = yield from run_idempotent(call)
        if not (isinstance(reply, Fault) and reply.migrating):
            break
        yield Sleep(random.uniform(*RETRY_SECONDS))
    return reply


def must_requeue(wait: Wait, left: float) -> bool:
    """Return whether a refused client must queue again: it is no longer a waiter in the store, but time is left.

    `Wait.LAST_TRY` may have been sent early because of a wake-up. ``left``: seconds until the deadline.
    """
    return wait is Wait.LAST_TRY and left > MIN_WAIT_SECONDS
