"""The requests that extend, restore and cancel a lease on one node, and what their replies mean."""

from __future__ import annotations

from typing import Any

from ..flow.requests import EvalScript, Fault
from ..flow.scripts import script
from ..keys import Keys
from ..primitives.base import Primitive
from ..primitives.fair import RESTORED
from ..values import Claim, Lease
from .quarantine import Quarantine

_DESCRIBE = script("describe")


def describe_request(keys: Keys, with_waiters: bool, node: int = 0) -> EvalScript:
    """Return the request that reads a lock, and with ``with_waiters`` also the entries of its waiters."""
    return EvalScript(_DESCRIBE, (keys.lock, keys.waiters), (b"1" if with_waiters else b"0",), node)


def cancel_requests(primitive: Primitive, claim: Claim) -> list[EvalScript]:
    """Return the requests that remove ``claim`` from the waiters, and release the lock if any attempt was granted."""
    return [primitive.dequeue_request(claim), primitive.release_request(claim.all_attempts())]


def quarantine_restore_request(primitive: Primitive, claim: Claim, ttl: float, guard: Quarantine) -> EvalScript:
    """Return the request that restores a lock on a server that has forgotten it and is in quarantine.

    The caller must send `Quarantine.noop_request` first, which starts a quarantine that is due. The caller must ignore
    a reply that arrives after the end of the old lease: the server may have granted the lock to another client by then,
    and have forgotten that grant, too.
    """
    return guard.wrap(restore_request(primitive, claim, ttl), "quarantine_restore")


def restore_request(primitive: Primitive, claim: Claim, ttl: float) -> EvalScript:
    """Return the request by which a holder acquires its lock on a node that does not have it.

    It ignores the fair queue, asks for the granted stripe only, and is not undone after a timeout.
    """
    held = claim._replace(ttl=ttl, all_keys=claim.all_keys if claim.require_all else claim.all_keys[:1])
    return primitive._replace(queue_order=RESTORED).acquire_request(held)._replace(compensation=None)


def extension(lease: Lease, ttl: float, reply: Any, start: float) -> Lease | Fault | None:
    """Return the outcome of an extension that was sent at ``start`` (monotonic seconds), from its reply."""
    if isinstance(reply, Fault):
        return reply
    return lease.extended(start, ttl) if is_confirmed(reply) else None


def is_confirmed(reply: Any) -> bool:
    """Return whether ``reply`` confirms an extension, or grants the lock to a restore request or a hand-over."""
    return reply == 1 or (isinstance(reply, list) and reply[:1] == [1]) or (isinstance(reply, int) and reply > 1)
