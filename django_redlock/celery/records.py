"""The record of a task in the store: who is queued or running, moved from state to state by scripts.

A hash with one field for each task id; see ``core/lua/task_submit.lua``. Every hand-over (submitted, queued, running,
queued again for a retry, gone) is one atomic script, idempotent because the sending or the run token identifies it.
"""

from __future__ import annotations

import os
from functools import partial
from typing import NamedTuple, cast

from ..core.algorithms.quarantine import unwrap_reply
from ..core.algorithms.single_node import SingleNode, run_idempotent
from ..core.flow.replies import fault_error, read_outcome
from ..core.flow.requests import EvalScript, Fault, Flow
from ..core.flow.scripts import script
from ..core.keys import Keys
from ..core.locks.lock import Lock
from ..core.owner import Fields, describe_owner
from ..core.primitives.base import Primitive
from ..core.values import Claim, Lease, Refusal, millis
from .modes import Mode

SUBMIT = script("task_submit")
START = script("task_start")
EXTEND = script("task_extend")
END = script("task_end")
CANCEL = script("task_cancel")
REQUEUE_DEAD = script("task_requeue_dead")


class TaskCall(NamedTuple):
    """One call of a task: its lock, who asks for it, and on which terms. Times are seconds.

    ``sending`` is the message's own identity: a message that comes again has the same, a retry has another.
    ``life`` is how long a queued record lasts from now, ``remember`` how long an ended sending is known as such.
    """

    name: str
    keys: Keys
    task: str
    task_id: str
    delivery_id: str
    mode: Mode
    limit: int
    queued_ttl: float
    done_ttl: float

    @property
    def owner(self) -> Fields:
        """What the record says of the task, beside host, pid and thread."""
        return Fields.of(self.task, "task_id", self.task_id)

    @property
    def requeue_ttl(self) -> float:
        """How long its record counts as queued when its message is delivered again: 0 where nothing is queued."""
        return self.queued_ttl if self.mode.at_submit else 0.0

    @property
    def done_key(self) -> bytes:
        """The key that says that this sending has ended."""
        return self.keys.lock + b":done:" + self.delivery_id.encode()


class BodyLease(Primitive):
    """The lease of one running body, as a kind of lock: what holds and renews other locks does so with this one.

    ``ended`` turns true when the body has run to its end; until then giving up means to be queued again as before.
    """

    call: TaskCall
    ended = False
    requeue_ttl = 0.0

    @classmethod
    def of(cls, call: TaskCall) -> BodyLease:
        """The lease of ``ticket``."""
        running = cls("task", START, EXTEND, END)
        running.call = call
        running.requeue_ttl = call.requeue_ttl
        return running

    def acquire_request(self, claim: Claim, wait: int = 0, node: int = 0) -> EvalScript:
        """Ask to run. One that is put back after the server forgot it has no rivals, whatever that still knows."""
        ticket, keys = cast("TaskCall", claim.queue_key), claim.keys
        args = (
            claim.token,
            claim.owner,
            millis(claim.ttl),
            ticket.task_id.encode(),
            ticket.delivery_id.encode(),
            b"%d" % ticket.limit,
            ticket.mode.at_start.encode() if self.queue_order else b"",
            millis(ticket.queued_ttl) if ticket.mode.until_expiry else b"0",
            b"%d" % wait,
        )
        return EvalScript(
            START,
            (keys.lock, keys.waiters, ticket.done_key),
            args,
            node,
            partial(self.release_request, claim, node=node),
        )

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        """Replace the rest of the lease by ``ttl``."""
        return EvalScript(EXTEND, (claim.keys.lock,), (claim.token, millis(ttl)), node)

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """The body has ended, or never began."""
        ticket, keys = self.call, claim.keys
        args = (
            claim.token,
            ticket.task_id.encode(),
            ticket.delivery_id.encode(),
            millis(ticket.done_ttl) if self.ended else b"0",
            millis(self.requeue_ttl) if self.requeue_ttl else b"0",
        )
        return EvalScript(END, (keys.lock, keys.waiters, keys.wake, ticket.done_key), args, node)


class BodyLock(Lock):
    """The handle of one. Leases are renewed together, by the primitive of any of them: each brings its own ticket."""

    def new_claim(self) -> Claim:
        return super().new_claim()._replace(queue_key=cast("BodyLease", self.primitive).call)


class CancelRecord(Primitive):
    """A queued record that is to go: "giving the lock back" cancels it."""

    call: TaskCall

    @classmethod
    def of(cls, call: TaskCall) -> CancelRecord:
        """The record of ``ticket``."""
        forgotten = cls("task", START, EXTEND, CANCEL)
        forgotten.call = call
        return forgotten

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """Forget it."""
        return cancel_request(self.call)


def submit(call: TaskCall, own: bool, replace: bool, algorithm: SingleNode) -> Flow[Lease | Refusal]:
    """Queue the task. ``own``: as a retry of the one who has the record; ``replace``: in place of a queued one.

    Raises ``LockUnavailable``.
    """
    owner = describe_owner(call.owner)
    claim = Claim(call.name, call.keys, call.delivery_id.encode(), owner, call.queued_ttl)
    args = (
        call.task_id.encode(),
        claim.token,
        owner,
        millis(call.queued_ttl),
        b"%d" % call.limit,
        call.mode.at_submit.encode(),
        b"1" if own else b"0",
        b"1" if replace else b"0",
        millis(call.done_ttl),
    )
    run = EvalScript(SUBMIT, (call.keys.lock,), args, compensation=partial(cancel_request, call))
    start = algorithm.clock()
    reply = unwrap_reply((yield from run_idempotent(algorithm.quarantine.wrap(run) if algorithm.quarantine else run)))
    if isinstance(reply, Fault):
        raise fault_error(call.name, reply)
    return read_outcome(claim, reply, start)


def cancel_request(call: TaskCall, same_delivery: bool = True) -> EvalScript:
    """Forget the queued task, with ``sending`` only if it is this one."""
    keys = call.keys
    args = (call.task_id.encode(), call.delivery_id.encode() if same_delivery else b"")
    return EvalScript(CANCEL, (keys.lock, keys.waiters, keys.wake), args)


def cancel(call: TaskCall, same_delivery: bool = True) -> Flow[bool]:
    """The task will not run: whether it was queued. Raises ``LockUnavailable``."""
    return (yield from _run(call, cancel_request(call, same_delivery)))


def requeue_dead(call: TaskCall, pid: int) -> Flow[bool]:
    """The process ``pid`` of this host is dead: whether the task was running there. What was queued is so again.

    Raises ``LockUnavailable``.
    """
    keys = call.keys
    args = (call.task_id.encode(), process(pid), millis(call.requeue_ttl) if call.requeue_ttl else b"0")
    return (yield from _run(call, EvalScript(REQUEUE_DEAD, (keys.lock, keys.waiters, keys.wake, call.done_key), args)))


def process(pid: int) -> bytes:
    """The part of an owner's JSON that names a process of this host."""
    own = describe_owner()
    return own[1 : own.index(b',"thread"')].replace(b'"pid":%d' % os.getpid(), b'"pid":%d' % pid) + b","


def _run(call: TaskCall, run: EvalScript) -> Flow[bool]:
    reply = yield from run_idempotent(run)
    if isinstance(reply, Fault):
        raise fault_error(call.name, reply)
    return bool(reply == 1)
