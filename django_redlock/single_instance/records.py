"""The requests that change the record of a task's call. Each is one atomic script, and can be repeated safely.

Two kinds of locks (primitives): `BODY` is the lease of a running body, `QUEUED` the record of a queued call. The core
renews and releases them like any lock, and retries the removal of a queued record in the background. Code that doesn't
hold the body's lease uses the flows: submit, rename, cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

from ..core.algorithms.retries import run_while_moving
from ..core.algorithms.single_node import SingleNode
from ..core.background.work import background
from ..core.contract import Store
from ..core.flow.replies import fault_error, is_grant, read_outcome
from ..core.flow.requests import EvalScript, Fault, Flow
from ..core.flow.scripts import script
from ..core.keys import Keys
from ..core.locks.lock import Lock
from ..core.options import LockOptions
from ..core.owner import Owner, describe_owner
from ..core.primitives.base import RESTORED, Primitive
from ..core.values import Claim, Refusal, Wait, millis, new_token
from .call import Ending, TaskCall

_START, _EXTEND, _END, _CANCEL = map(script, ("task_start", "task_extend", "task_end", "task_cancel"))
_SUBMIT, _PUT_OFF, _RENAME = map(script, ("task_submit", "task_put_off", "task_rename"))
MESSAGE_SECONDS = 120.0  # the store drops a message after this time; each further refusal of the call stores it again
MAX_MESSAGES = 1000  # most messages that the store keeps for one lock


def task_keys(keys: Keys) -> tuple[bytes, ...]:
    """Return the keys that scripts for task records need, see ``core/lua/task_record.lua``."""
    lock = keys.lock
    return (*keys.of_mutex, lock + b":put_off", lock + b":put_off:order", lock + b":replaced")


# ── the lease of a running body ──────────────────────────────────────────────────────────────────


@dataclass(slots=True, eq=False)
class RunningBody:
    """The ``record`` of the claim of a running body. ``ending``: what the end of its lease does to the record."""

    call: TaskCall
    ending: Ending = "removed"  # also after a start without a reply, which may have been granted


class BodyPrimitive(Primitive):
    """The kind of lock that a running body holds. The ``record`` of its claims is a `RunningBody`."""

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        """Return the request that starts the body: it writes the lease to the record, or refuses the call.

        If the ``queue_order`` of this primitive is `RESTORED`, the request restores the lease of a running body after a
        loss of data, even if calls with other task ids are recorded.
        """
        call, keys = claim.record.call, claim.keys
        ended, number = ended_mark(call)
        args = (
            claim.token,
            claim.owner,
            millis(claim.ttl),
            call.task_id.encode(),
            call.delivery_id.encode(),
            b"%d" % call.limit,
            b"" if self.queue_order == RESTORED else call.mode.at_start.encode(),
            millis(call.queued_ttl) if call.mode.until_expiry else b"0",
            self.wait_arg(wait),
            number,
        )
        undo = partial(self.release_request, claim, node=node)
        return EvalScript(_START, (*task_keys(keys), ended), args, node, undo)

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        """Return the request that extends the lease to ``ttl`` seconds from now."""
        return EvalScript(_EXTEND, (claim.keys.lock,), (claim.token, millis(ttl)), node)

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """Return the request that ends the body and releases its lease. ``keep`` has no effect."""
        running: RunningBody = claim.record
        return end_request(running.call, running.ending, claim.token, node=node)


def end_request(call: TaskCall, ending: Ending, token: bytes = b"", part: bytes = b"", node: int = 0) -> EvalScript:
    """Return the request that ends the body of ``call``. ``ending``: the effect on the record.

    The request has an effect only if the body's lease has ``token``, and the JSON of its owner contains ``part``. An
    empty value matches any body.
    """
    ended, number = ended_mark(call)
    args = (
        token,
        call.task_id.encode(),
        millis(call.done_ttl) if ending == "ended" else b"0",
        millis(call.queued_ttl) if ending == "requeued" and call.mode.at_submit else b"0",
        number,
        part,
    )
    return EvalScript(_END, (*task_keys(call.keys), ended), args, node)


class BodyLock(Lock):
    def __init__(self, store: Store, call: TaskCall, options: LockOptions) -> None:
        super().__init__(store, BODY, call.name, call.keys, options)
        self.running = RunningBody(call)

    def new_claim(self) -> Claim:
        call, ttl = self.running.call, self.options.ttl
        owner, asked = call.owner(ttl), self.store.clock()
        return Claim(call.name, (call.keys,), new_token(), owner, ttl, record=self.running, asked=asked)


# ── queued records ───────────────────────────────────────────────────────────────────────────────


class QueuedPrimitive(Primitive):
    """The record of a queued call as a kind of lock. A release removes the record, which cancels the call."""

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """Return the request that removes the record of the queued call. ``keep`` and ``node`` have no effect."""
        return cancel_request(claim.record)


BODY = BodyPrimitive("task", _START, _EXTEND, _END)
QUEUED = QueuedPrimitive("task", _START, _EXTEND, _CANCEL)


def cancel_request(call: TaskCall) -> EvalScript:
    """Return the request to remove the queued record of ``call``. A call replaced by ``call`` may run again.

    If ``call`` has no delivery id, the record is removed whatever its delivery id is.
    """
    return EvalScript(_CANCEL, task_keys(call.keys), (call.task_id.encode(), call.delivery_id.encode()))


def cancel_token(task_id: str) -> bytes:
    """Return the token under which retries to remove a call's queued record are scheduled."""
    return b"cancel:" + task_id.encode()


def submit(call: TaskCall, own: bool, replace: bool, algorithm: SingleNode) -> Flow[Refusal | None]:
    """Write the record of a queued call. Returns ``None``, or a `Refusal` if another call holds the lock.

    ``own``: the call is a retry, which is always granted if there is a record with its task id. ``replace``: replace
    another queued call. Raises ``LockUnavailable``.
    """
    args = (
        call.task_id.encode(),
        call.delivery_id.encode(),
        call.owner(),
        millis(call.queued_ttl),
        b"%d" % call.limit,
        call.mode.at_submit.encode(),
        b"1" if own else b"0",
        b"1" if replace else b"0",
        millis(call.done_ttl),
    )
    undo = partial(cancel_request, call)
    keys = task_keys(call.keys) if replace else (call.keys.lock,)
    request = EvalScript(_SUBMIT, keys, args, compensation=undo)
    claim = Claim(call.name, (call.keys,), b"", b"", call.queued_ttl)
    while True:
        start = algorithm.clock()
        reply = yield from algorithm.run_granting(request, call.name)
        if is_grant(reply):
            return None
        if isinstance(reply, Fault):
            raise fault_error(call.name, reply)
        refusal = cast("Refusal", read_outcome(claim, reply, start))
        # The record in the way may belong to a call that this process has not sent, and that it cancels later.
        token = cancel_token(str(Owner.parse(refusal.holder).extra.get("task_id", "")))
        _, orphan = background.orphans.get(token, (0.0, None))
        if orphan is None or not (yield from orphan.release_flow()):
            return refusal


def cancel(call: TaskCall) -> Flow[bool]:
    """Cancel the queued ``call``, see `cancel_request`. Returns whether it was queued. Raises ``LockUnavailable``."""
    return (yield from _run(call, cancel_request(call)))


def rename(call: TaskCall, task_id: str) -> Flow[bool]:
    """Give the queued record of ``task_id`` the task id and the owner of ``call``. ``"?"``: any provisional id.

    Returns whether the record was changed. Raises ``LockUnavailable``.
    """
    args = (task_id.encode(), call.task_id.encode(), call.owner())
    return (yield from _run(call, EvalScript(_RENAME, (call.keys.lock,), args)))


def keep_message(call: TaskCall, message: bytes) -> Flow[bool]:
    """Store the message of a refused call. The script that ends the running body returns this message.

    Returns ``False``, and stores nothing, if the call would no longer be refused. Raises ``LockUnavailable``.
    """
    args = (
        call.task_id.encode(),
        call.delivery_id.encode(),
        b"%d" % call.limit,
        call.mode.at_start.encode(),
        message,
        millis(MESSAGE_SECONDS),
        b"%d" % MAX_MESSAGES,
    )
    return (yield from _run(call, EvalScript(_PUT_OFF, task_keys(call.keys), args)))


def remember_ended(call: TaskCall) -> Flow[bool]:
    """Record that ``call`` has ended, so that another copy of its message is not run. Raises ``LockUnavailable``."""
    return (yield from _run(call, end_request(call._replace(task_id=""), "ended")))


def end_dead(call: TaskCall, pid: int, redelivered: bool) -> Flow[bool]:
    """End the body of ``call`` if it ran in the dead process ``pid`` of this host. Raises ``LockUnavailable``.

    ``redelivered``: the broker will deliver the message again, so the record becomes a queued one in modes with queued
    records. Otherwise the record is removed, and no copy of the message runs. Returns whether the body ran there.
    """
    host = describe_owner()[1:].partition(b'"pid":')[0]
    request = end_request(call, "requeued" if redelivered else "ended", part=host + b'"pid":%d,' % pid)
    return (yield from _run(call, request))


def _run(call: TaskCall, request: EvalScript) -> Flow[bool]:
    """Run ``request`` and return whether it changed the record."""
    reply = yield from run_while_moving(request)
    if isinstance(reply, Fault):
        raise fault_error(call.name, reply)
    return bool(reply == 1)


# ── ended deliveries ─────────────────────────────────────────────────────────────────────────────

# Each set is for the deliveries that were sent within about two minutes, spread over 512 sets. It lists each delivery
# as a 64-bit number, and expires as a whole. Redis keeps a set of up to 512 numbers as an array of 8 bytes each
# (``set-max-intset-entries``): up to 2,048 deliveries a second, a set stays an array. From 25 a second on, a delivery
# needs less than 40 bytes with its share of key and set. On a Cluster, the set must be in the slot of the lock, and it
# lists the deliveries of an hour. The probability that a new delivery is mistaken for an ended one is the size of its
# set divided by 2**64.
_SECONDS, _SETS = 128, 512
_CLUSTER_SECONDS = 3600
_SIGN = 1 << 63


def ended_mark(call: TaskCall) -> tuple[bytes, bytes]:
    """Return the key of the set that lists ended deliveries, and the number of the delivery of ``call`` in it.

    The key contains the time from the delivery id. A delivery id without a time has a set of its own.
    """
    lock_key = call.keys.lock
    sent, number = divmod(int(call.delivery_id, 16), 1 << 64)
    if call.cluster:
        key = b"%b:ended:%x" % (lock_key, sent // _CLUSTER_SECONDS)
    else:
        key = b"%b:ended:%x.%x" % (lock_key.partition(b":{")[0], sent // _SECONDS, number % _SETS)
    return key, b"%d" % (number - _SIGN)
