"""Two kinds of locks (primitives) for tasks: `BODY` for the lease of a running body, `QUEUED` for a queued record.

With these primitives, the core renews and releases the lease of a body like the lease of any lock, and retries the
removal of a queued record in the background.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from ..core.contract import Store
from ..core.flow.requests import EvalScript
from ..core.flow.scripts import script
from ..core.keys import Keys
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.options import LockOptions
from ..core.primitives.base import Primitive
from ..core.values import Claim, Lease, Wait, millis, new_token
from .call import Ending, TaskCall, task_keys

_START, _EXTEND, _END, _CANCEL = map(script, ("task_start", "task_extend", "task_end", "task_cancel"))


def call_of(claim: Claim) -> TaskCall:
    """Return the `TaskCall` that a claim for `BODY` or `QUEUED` has as its payload."""
    return cast("TaskCall", claim.payload)


def cancel_request(keys: Keys, task_id: str, delivery_id: str = "") -> EvalScript:
    """Return the request that removes the record of the queued task ``task_id``.

    ``delivery_id``: remove the record only if it has this delivery id; ``""``: any.
    """
    return EvalScript(_CANCEL, keys.of_mutex, (task_id.encode(), delivery_id.encode()))


class BodyPrimitive(Primitive):
    """The kind of lock that a running body holds. The payload of its claims is the `TaskCall`."""

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        """Return the request that starts the body. Its script writes the lease to the record, or refuses the call.

        If the ``queue_order`` of this primitive is 0, the request restores the lease of a running body after a loss of
        data. Calls with other task ids then don't refuse it.
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
            self.wait_arg(wait),
            ended.number,
        )
        undo = partial(self.release_request, claim, node=node)
        return EvalScript(_START, (*task_keys(keys), ended.key), args, node, undo)

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        """Return the request that lets the lease end ``ttl`` seconds from now."""
        return EvalScript(_EXTEND, (claim.keys.lock,), (claim.token, millis(ttl)), node)

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """Return the request that ends the body and releases the body's lease.

        The ``ending`` in the claim's payload decides whether the record is removed or queued again, see `Ending`.
        ``keep`` has no effect.
        """
        call = call_of(claim)
        ended = call.ended
        args = (
            claim.token,
            call.task_id.encode(),
            millis(call.done_ttl) if call.ending == "ended" else b"0",
            millis(call.requeue_ttl) if call.ending == "requeued" and call.requeue_ttl else b"0",
            ended.number,
        )
        return EvalScript(_END, (*task_keys(claim.keys), ended.key), args, node)


class QueuedPrimitive(Primitive):
    """The record of a queued call as a kind of lock. A release removes the record, which cancels the call."""

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """Return the request that removes the record of the queued call, if it has the call's delivery id.

        ``keep`` and ``node`` have no effect.
        """
        call = call_of(claim)
        return cancel_request(call.keys, call.task_id, call.delivery_id)


BODY = BodyPrimitive("task", _START, _EXTEND, _END)
QUEUED = QueuedPrimitive("task", _START, _EXTEND, _CANCEL)


class BodyLock(Lock):
    """The lock handle of a running body. ``ending``: the effect of `release_flow` on the record, see `Ending`."""

    def __init__(self, store: Store, call: TaskCall, options: LockOptions) -> None:
        super().__init__(store, BODY, call.name, call.keys, options)
        self.call = call
        self.ending: Ending = "requeued"

    def new_claim(self) -> Claim:
        call, ttl = self.call, self.options.ttl
        owner, asked = call.owner(ttl), self.store.clock()
        return Claim(call.name, (call.keys,), new_token(), owner, ttl, payload=call, asked=asked)

    def on_granted(self, lease: Lease) -> Hold:
        # The release of a lost lease must not queue the call again: nothing would remove that record.
        return super().on_granted(self._with_ending(lease, "removed"))

    def _lease_to_release(self, lease: Lease) -> Lease:
        return self._with_ending(lease, self.ending)

    def _with_ending(self, lease: Lease, ending: Ending) -> Lease:
        if ending == call_of(lease.claim).ending:
            return lease
        return lease._replace(claim=lease.claim._replace(payload=self.call._replace(ending=ending)))
