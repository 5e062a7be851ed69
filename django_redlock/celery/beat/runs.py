"""The last run of each entry of the schedule, kept in the lock store, so that the next leader continues the schedule.

A run is recorded before its message is sent, and marked as sent afterwards. A leader that finds a run without the mark
sends the message under the recorded task id. The store refuses the records of a leader whose fencing token is not the
largest, so a process that was paused can't record a run after another has begun to lead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterator
from datetime import datetime
from typing import Any, NamedTuple, Self
from uuid import UUID, uuid4, uuid5

from ...backends.base import Backend
from ...core.algorithms.retries import run_idempotent
from ...core.election.leader import Leader
from ...core.flow.replies import fault_error
from ...core.flow.requests import EvalScript, Fault, Flow
from ...core.flow.scripts import script

KEPT_MS = 400 * 24 * 3600 * 1000  # 400 days, because an entry may run once a year

_SCRIPT = script("beat_run")


class LeadEnded(Exception):
    """This process no longer leads, so its scheduler must send no more tasks."""


class Run(NamedTuple):
    """The last run of an entry of the schedule. ``at`` is its time in ISO format, ``task_id`` the id of its message.

    ``number`` is 1 for the first run. Number 0 means that the entry has not run yet: ``at`` is then the time from which
    its schedule is computed. ``sent`` is false if the run was recorded, but its message was not sent yet.
    """

    number: int
    at: str
    task_id: str = ""
    sent: bool = True

    def message_id(self, place: int) -> str:
        """Return the task id of a message of the run, the same each time. ``place``: 0 for the first message.

        A scheduler may send several messages for one run of an entry, for example one for each tenant.
        """
        return self.task_id if not place else str(uuid5(UUID(self.task_id), str(place)))

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return the run that `encode` has written."""
        return cls(*json.loads(text))

    def encode(self) -> bytes:
        """Return the run as JSON."""
        return json.dumps(self).encode()


class Runs:
    """The last runs of all entries of the schedule, for one term of a leader.

    The constructor and all methods that write to the store raise `LeadEnded` if this process no longer leads, and
    ``LockError`` if the store fails.
    """

    def __init__(self, backend: Backend, leader: Leader) -> None:
        token = leader.fencing_token
        if token is None:
            raise LeadEnded
        self.token = token
        self._backend = backend
        self._leader = leader
        self._key = backend.keys_of(leader.name).lock + b":runs"
        reply = self._request()
        fields = dict(zip(reply[::2], reply[1::2], strict=True))
        self._runs = {name.decode(): Run.parse(text) for name, text in fields.items() if name}

    def check(self) -> None:
        """Raise ``LeadEnded`` unless this process leads in this term."""
        if self._leader.fencing_token != self.token:
            raise LeadEnded

    def restore(self, entry: Any) -> None:
        """Set ``entry.last_run_at`` to the time of the entry's recorded run, in the time zone that it has already.

        A schedule counts days in this time zone, and a record has only the offset from UTC. For an entry without a
        recorded run, record ``entry.last_run_at`` as the time of run number 0.
        """
        if (run := self._runs.get(entry.name)) is None:
            self._record(entry.name, Run(0, entry.last_run_at.isoformat()))
        else:
            at, zone = datetime.fromisoformat(run.at), entry.last_run_at.tzinfo
            entry.last_run_at = at.astimezone(zone) if at.tzinfo and zone else at

    def begin(self, name: str, at: datetime) -> Run:
        """Record a run of the entry ``name`` at the time ``at``, marked as not sent. Returns the run.

        If the entry's previous run is not sent yet, for example because the broker was down, no new run begins.
        Instead, the previous run gets the new time, and keeps its number and its task id.
        """
        before = self._runs.get(name, Run(0, ""))
        new = Run(before.number + 1, "", str(uuid4()), sent=False) if before.sent else before
        run = new._replace(at=at.isoformat())
        self._record(name, run)
        return run

    def mark_sent(self, name: str) -> None:
        """Record that the message of the last run of ``name`` was sent."""
        self._record(name, self._runs[name]._replace(sent=True))

    def unsent(self) -> Iterator[tuple[str, Run]]:
        """Return the name and the last run of each entry whose last run is not marked as sent."""
        return iter([(name, run) for name, run in self._runs.items() if not run.sent])

    def forget_removed(self, schedule: Container[str]) -> None:
        """Remove the runs of entries that are not in ``schedule`` and whose last run was more than 400 days ago.

        An entry with a later run keeps it, because ``django_celery_beat`` leaves an entry out of the schedule at hours
        at which the entry is not due.
        """
        oldest = time.time() - KEPT_MS / 1000
        for name, run in list(self._runs.items()):
            if name not in schedule and datetime.fromisoformat(run.at).timestamp() < oldest:
                self._record(name, None)

    def _record(self, name: str, run: Run | None) -> None:
        self.check()
        before = self._runs.get(name)
        if self._request(name.encode(), before.encode() if before else b"", run.encode() if run else b"") != 1:
            raise LeadEnded
        if run:
            self._runs[name] = run
        else:
            del self._runs[name]

    def _request(self, name: bytes = b"", before: bytes = b"", run: bytes = b"") -> Any:
        reply = self._backend.drive(self._flow(name, before, run))
        if reply == 0:
            raise LeadEnded
        return reply

    def _flow(self, *args: bytes) -> Flow[Any]:
        words = (b"%d" % self.token, *args, b"%d" % KEPT_MS)
        reply = yield from run_idempotent(EvalScript(_SCRIPT, (self._key,), words))
        if isinstance(reply, Fault):
            raise fault_error(self._leader.name, reply)
        return reply
