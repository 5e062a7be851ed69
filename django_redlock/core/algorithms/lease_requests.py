"""The requests that describe, extend and restore a lease on one node, and what their replies mean."""

from __future__ import annotations

from collections.abc import Sequence
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


def extension(lease: Lease, ttl: float, replies: Sequence[Any], start: float) -> Lease | Fault | None:
    """Return the outcome of an extension that was sent at ``start`` (monotonic seconds), from its replies."""
    faults = [reply for reply in replies if isinstance(reply, Fault)]
    if sum(map(is_confirmed, replies)) + len(faults) < max(1, len(replies)):
        return None
    return faults[0] if faults else lease.extended(start, ttl)


def is_confirmed(reply: Any) -> bool:
    """Return whether ``reply`` confirms an extension, or grants the lock to a restore request or a hand-over."""
    return reply == 1 or (isinstance(reply, list) and reply[:1] == [1]) or (isinstance(reply, int) and reply > 1)
