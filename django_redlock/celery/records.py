"""The record of a task in the store: who is queued or running, moved from state to state by scripts.

A hash with one field for each task id; see ``core/lua/task_submit.lua``. Every hand-over (submitted, queued, running,
queued again for a retry, gone) is one atomic script, idempotent because the sending or the run token identifies it.
"""

from __future__ import annotations

import os
from functools import partial
from typing import NamedTuple, cast

from ..core.flows.single import SingleNode, ask
from ..core.guard import served
from ..core.keys import Keys
from ..core.lease import Claim, Lease, Refusal, millis
from ..core.lock import Lock
from ..core.owner import Fields, describe_owner
from ..core.primitives import Primitive
from ..core.replies import outcome_of, trouble
from ..core.requests import Fault, Flow, Run
from ..core.scripts import script
from .modes import Mode

SUBMIT = script("task_submit")
START = script("task_start")
EXTEND = script("task_extend")
END = script("task_end")
CANCEL = script("task_cancel")
BURY = script("task_bury")


class Ticket(NamedTuple):
    """One call of a task: its lock, who asks for it, and on which terms. Times are seconds.

    ``sending`` is the message's own identity: a message that comes again has the same, a retry has another.
    ``life`` is how long a queued record lasts from now, ``remember`` how long an ended sending is known as such.
    """

    name: str
    keys: Keys
    task: str
    task_id: str
    sending: str
    mode: Mode
    limit: int
    life: float
    remember: float

    @property
    def owner(self) -> Fields:
        """What the record says of the task, beside host, pid and thread."""
        return Fields.of(self.task, "task_id", self.task_id)

    @property
    def keep(self) -> float:
        """How long its record counts as queued when its message is delivered again: 0 where nothing is queued."""
        return self.life if self.mode.at_submit else 0.0

    @property
    def done(self) -> bytes:
        """The key that says that this sending has ended."""
        return self.keys.lock + b":done:" + self.sending.encode()


class Running(Primitive):
    """The lease of one running body, as a kind of lock: what holds and renews other locks does so with this one.

    ``ended`` turns true when the body has run to its end; until then giving up means to be queued again as before.
    """

    ticket: Ticket
    ended = False
    keep = 0.0

    @classmethod
    def of(cls, ticket: Ticket) -> Running:
        """The lease of ``ticket``."""
        running = cls("task", START, EXTEND, END)
        running.ticket = ticket
        running.keep = ticket.keep
        return running

    def take(self, claim: Claim, wait: int = 0, node: int = 0) -> Run:
        """Ask to run. One that is put back after the server forgot it has no rivals, whatever that still knows."""
        ticket, keys = cast("Ticket", claim.lane), claim.keys
        args = (
            claim.token,
            claim.owner,
            millis(claim.ttl),
            ticket.task_id.encode(),
            ticket.sending.encode(),
            b"%d" % ticket.limit,
            ticket.mode.at_start.encode() if self.order else b"",
            millis(ticket.life) if ticket.mode.stays else b"0",
            b"%d" % wait,
        )
        return Run(START, (keys.lock, keys.waiters, ticket.done), args, node, partial(self.free, claim, node=node))

    def prolong(self, claim: Claim, ttl: float, tenure: bytes = b"", node: int = 0) -> Run:
        """Replace the rest of the lease by ``ttl``."""
        return Run(EXTEND, (claim.keys.lock,), (claim.token, millis(ttl), tenure), node)

    def free(self, claim: Claim, keep: float = 0.0, node: int = 0) -> Run:
        """The body has ended, or never began."""
        ticket, keys = self.ticket, claim.keys
        args = (
            claim.token,
            ticket.task_id.encode(),
            ticket.sending.encode(),
            millis(ticket.remember) if self.ended else b"0",
            millis(self.keep) if self.keep else b"0",
        )
        return Run(END, (keys.lock, keys.waiters, keys.wake, ticket.done), args, node)


class RunningLock(Lock):
    """The handle of one. Leases are renewed together, by the primitive of any of them: each brings its own ticket."""

    def _claim(self) -> Claim:
        return super()._claim()._replace(lane=cast("Running", self._primitive).ticket)


class Forgotten(Primitive):
    """A queued record that is to go: "giving the lock back" cancels it."""

    ticket: Ticket

    @classmethod
    def of(cls, ticket: Ticket) -> Forgotten:
        """The record of ``ticket``."""
        forgotten = cls("task", START, EXTEND, CANCEL)
        forgotten.ticket = ticket
        return forgotten

    def free(self, claim: Claim, keep: float = 0.0, node: int = 0) -> Run:
        """Forget it."""
        return cancel_run(self.ticket)


def submit(ticket: Ticket, own: bool, replace: bool, rule: SingleNode) -> Flow[Lease | Refusal]:
    """Queue the task. ``own``: as a retry of the one who has the record; ``replace``: in place of a queued one.

    Raises ``LockUnavailable``.
    """
    owner = describe_owner(ticket.owner)
    claim = Claim(ticket.name, ticket.keys, ticket.sending.encode(), owner, ticket.life)
    args = (
        ticket.task_id.encode(),
        claim.token,
        owner,
        millis(ticket.life),
        b"%d" % ticket.limit,
        ticket.mode.at_submit.encode(),
        b"1" if own else b"0",
        b"1" if replace else b"0",
        millis(ticket.remember),
    )
    run = Run(SUBMIT, (ticket.keys.lock,), args, undoing=partial(cancel_run, ticket))
    start = rule.clock()
    reply = served((yield from ask(rule.guard.over(run) if rule.guard else run)))
    if isinstance(reply, Fault):
        raise trouble(ticket.name, reply)
    return outcome_of(claim, reply, start)


def cancel_run(ticket: Ticket, sending: bool = True) -> Run:
    """Forget the queued task, with ``sending`` only if it is this one."""
    keys = ticket.keys
    args = (ticket.task_id.encode(), ticket.sending.encode() if sending else b"")
    return Run(CANCEL, (keys.lock, keys.waiters, keys.wake), args)


def cancel(ticket: Ticket, sending: bool = True) -> Flow[bool]:
    """The task will not run: whether it was queued. Raises ``LockUnavailable``."""
    return (yield from _tell(ticket, cancel_run(ticket, sending)))


def bury(ticket: Ticket, pid: int) -> Flow[bool]:
    """The process ``pid`` of this host is dead: whether the task was running there. What was queued is so again.

    Raises ``LockUnavailable``.
    """
    keys = ticket.keys
    args = (ticket.task_id.encode(), process(pid), millis(ticket.keep) if ticket.keep else b"0")
    return (yield from _tell(ticket, Run(BURY, (keys.lock, keys.waiters, keys.wake, ticket.done), args)))


def process(pid: int) -> bytes:
    """The part of an owner's JSON that names a process of this host."""
    own = describe_owner()
    return own[1 : own.index(b',"thread"')].replace(b'"pid":%d' % os.getpid(), b'"pid":%d' % pid) + b","


def _tell(ticket: Ticket, run: Run) -> Flow[bool]:
    reply = yield from ask(run)
    if isinstance(reply, Fault):
        raise trouble(ticket.name, reply)
    return bool(reply == 1)
