"""The lease of a running body and the queued record as primitives, so that the core can renew and release them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from ..core.contract import Store
from ..core.flow.requests import EvalScript
from ..core.flow.scripts import script
from ..core.keys import Keys
from ..core.locks.lease_state import EndedLease
from ..core.locks.lock import Lock
from ..core.options import LockOptions
from ..core.primitives.base import Primitive
from ..core.values import Claim, millis
from .call import Ending, TaskCall

_START, _EXTEND, _END, _CANCEL = map(script, ("task_start", "task_extend", "task_end", "task_cancel"))
_DONE = script("task_done")


def call_of(claim: Claim) -> TaskCall:
    """Return the call in the payload of a claim for `BODY` or `QUEUED`."""
    return cast("TaskCall", claim.payload)


def cancel_request(keys: Keys, task_id: str, delivery_id: str = "") -> EvalScript:
    """Return the request that removes a queued record.

    ``delivery_id``: only if the record belongs to this delivery.
    """
    return EvalScript(_CANCEL, (keys.lock,), (task_id.encode(), delivery_id.encode()))


def by_key(request: EvalScript, done_ttl: bytes | None) -> list[EvalScript]:
    """Split ``request`` into one request per key: first the set of ended deliveries, then the record.

    A Cluster refuses a request with two keys while it moves their slot, see ``core/lua/task_done.lua``. ``done_ttl``:
    ms for which the delivery is remembered as ended. ``0`` forgets it, ``None`` leaves the set unchanged. The last
    argument of ``request`` is the delivery's number in the set.
    """
    lock, ended = request.keys
    alone = request._replace(script=request.script._replace(keys=1), keys=(lock,))
    return [alone] if done_ttl is None else [EvalScript(_DONE, (ended,), (done_ttl, request.args[-1])), alone]


class BodyPrimitive(Primitive):
    """The primitive for the lease of a running body. The claim's payload is the `TaskCall`."""

    def acquire_request(self, claim: Claim, wait: int = 0, node: int = 0) -> EvalScript:
        """Start the body.

        With ``queue_order`` 0 no other call can refuse it: the lease is restored after a loss of data.
        """
        call, keys = call_of(claim), claim.keys
        ended = call.ended
        args = (
            claim.token,
            claim.owner,
            millis(claim.ttl),
            call.task_id.encode(),
            call.delivery_id.encode(),
            b"%d" % call.limit,
            call.mode.at_start.encode() if self.queue_order else b"",
            millis(call.queued_ttl) if call.mode.until_expiry else b"0",
            b"%d" % wait,
            ended.number,
        )
        undo = partial(self.release_request, claim, node=node)
        return EvalScript(_START, (keys.lock, keys.waiters, ended.key), args, node, undo)

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        """Set the lease to ``ttl`` seconds from now."""
        return EvalScript(_EXTEND, (claim.keys.lock,), (claim.token, millis(ttl)), node)

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """End the body. The ``ending`` of the call decides the fate of the record."""
        call = call_of(claim)
        ended = call.ended
        args = (
            claim.token,
            call.task_id.encode(),
            millis(call.done_ttl) if call.ending == "ended" else b"0",
            millis(call.requeue_ttl) if call.ending == "requeued" and call.requeue_ttl else b"0",
            ended.number,
        )
        return EvalScript(_END, (claim.keys.lock, ended.key), args, node)

    def release_by_key(self, claim: Claim, keep: float = 0.0) -> Sequence[EvalScript]:
        """Return `release_request` split into one request per key.

        The first remembers the delivery as ended, the last releases the lease.
        """
        call = call_of(claim)
        return by_key(self.release_request(claim, keep), millis(call.done_ttl) if call.ending == "ended" else None)


class QueuedPrimitive(Primitive):
    """The primitive for the record of a queued call. A release cancels the call."""

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """Remove the queued record of this delivery."""
        call = call_of(claim)
        return cancel_request(call.keys, call.task_id, call.delivery_id)


BODY = BodyPrimitive("task", _START, _EXTEND, _END)
QUEUED = QueuedPrimitive("task", _START, _EXTEND, _CANCEL)


class BodyLock(Lock):
    """The handle of a running body. ``ending``: the effect of `release_flow` on the record."""

    def __init__(self, store: Store, call: TaskCall, options: LockOptions) -> None:
        super().__init__(store, BODY, call.name, call.keys, options)
        self.call = call
        self.ending: Ending = "requeued"

    def new_claim(self) -> Claim:
        return super().new_claim()._replace(payload=self.call)

    def end_lease(self, token: bytes | None = None) -> EndedLease:
        ended = super().end_lease(token)
        claim = ended.lease.claim._replace(payload=self.call._replace(ending=self.ending))
        return ended._replace(lease=ended.lease._replace(claim=claim))
