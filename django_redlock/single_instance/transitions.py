"""Changes to a task's record by code that doesn't hold the body's lease: submit, rename, cancel, requeue a dead body.

Each change is one atomic script. The script is idempotent, so a request can be sent again.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from ..core.algorithms.retries import run_while_moving
from ..core.algorithms.single_node import SingleNode
from ..core.contract import Orphan
from ..core.flow.replies import fault_error, is_grant, read_outcome
from ..core.flow.requests import EvalScript, Fault, Flow
from ..core.flow.scripts import script
from ..core.owner import Owner, describe_owner
from ..core.primitives.base import sized_request
from ..core.renewal.registry import renewal
from ..core.values import Claim, Refusal, millis
from .body import cancel_request
from .call import TaskCall, task_keys

_SUBMIT, _END = script("task_submit"), script("task_end")
_PUT_OFF, _RENAME = script("task_put_off"), script("task_rename")
MESSAGE_SECONDS = 120.0  # the store drops a message after this time; each further refusal of the call stores it again
MAX_MESSAGES = 1000  # most messages that the store keeps for one lock


def submit(call: TaskCall, own: bool, replace: bool, algorithm: SingleNode) -> Flow[Refusal | None]:
    """Write the record of a queued call. Returns ``None``, or a `Refusal` if another call is in the way.

    ``own``: the call is a retry of a task. It is always granted if there is a record with its task id. ``replace``:
    replace a queued call that is in the way. Raises ``LockUnavailable``.
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
    undo = partial(cancel_request, call.keys, call.task_id, call.delivery_id)
    keys = task_keys(call.keys) if replace else (call.keys.lock,)
    request = sized_request(_SUBMIT, keys, args)._replace(compensation=undo)
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
        _, orphan = renewal.entries.get(token, (0.0, None))
        if not isinstance(orphan, Orphan) or not (yield from orphan.release_flow()):
            return refusal


def cancel_token(task_id: str) -> bytes:
    """Return the token under which the removal of the record of a call is scheduled."""
    return b"cancel:" + task_id.encode()


def cancel(call: TaskCall, same_delivery: bool = True) -> Flow[bool]:
    """Remove the record of a call that will not run. Returns whether it was queued. Raises ``LockUnavailable``.

    ``same_delivery``: remove the record only if it has the delivery id of ``call``.
    """
    return (yield from _run(call, cancel_request(call.keys, call.task_id, call.delivery_id if same_delivery else "")))


def rename(call: TaskCall, task_id: str) -> Flow[bool]:
    """Give the queued record with the task id ``task_id`` the task id and the owner of ``call``.

    ``task_id``: ``"?"`` means a record whose id begins with it. Returns whether the record was changed. Raises
    ``LockUnavailable``.
    """
    args = (task_id.encode(), call.task_id.encode(), call.owner())
    return (yield from _run(call, EvalScript(_RENAME, (call.keys.lock,), args)))


def keep_message(call: TaskCall, message: bytes) -> Flow[bool]:
    """Store the message of a call that was refused at its start. The script that ends a body returns the message.

    Returns ``False``, and stores nothing, if the call would no longer be refused. A call that was replaced stays
    refused, and its message is not stored. Raises ``LockUnavailable``.
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
    """Record that the delivery of ``call`` has ended, so that it is not run again. Raises ``LockUnavailable``."""
    ended = call.ended
    args = b"", b"", millis(call.done_ttl), b"0", ended.number
    return (yield from _run(call, EvalScript(_END, (*task_keys(call.keys), ended.key), args)))


def requeue_dead(call: TaskCall, pid: int, redelivered: bool = True) -> Flow[bool]:
    """End the body of ``call`` if the body ran in the dead process ``pid`` of this host.

    ``redelivered``: the broker will deliver the message again. The record is then changed to queued, except in a mode
    without queued records, and the delivery does not count as ended. Otherwise the record is removed. Returns whether
    the body ran in that process; if not, the record stays as it is. Raises ``LockUnavailable``.
    """
    ended, keep = call.ended, millis(call.requeue_ttl) if redelivered and call.requeue_ttl else b"0"
    args = (owner_part(pid), call.task_id.encode(), b"-1" if redelivered else b"0", keep, ended.number)
    return (yield from _run(call, EvalScript(_END, (*task_keys(call.keys), ended.key), args)))


def owner_part(pid: int) -> bytes:
    """Return the part of an owner's JSON that identifies process ``pid`` of this host."""
    host, _, _ = describe_owner()[1:].partition(b'"pid":')
    return host + b'"pid":%d,' % pid


def _run(call: TaskCall, request: EvalScript) -> Flow[bool]:
    """Run ``request`` and return whether it changed the record."""
    reply = yield from run_while_moving(request)
    if isinstance(reply, Fault):
        raise fault_error(call.name, reply)
    return bool(reply == 1)
