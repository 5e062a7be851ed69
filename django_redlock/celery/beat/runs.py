"""Stores the last run of each schedule entry in the lock store, so that the next leader continues the schedule.

A run is recorded before its message is sent, and marked as sent afterwards. A leader that finds a run without the mark
sends the message. The store refuses the records of a leader whose fencing token is not the largest, so a process that
was paused can't record a run after another has begun to lead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container
from datetime import datetime
from typing import Any, NamedTuple, Self

from ...backends.base import Backend
from ...core.algorithms.retries import run_idempotent
from ...core.election.leader import Leader
from ...core.flow.replies import fault_error
from ...core.flow.requests import EvalScript, Fault
from ...core.flow.scripts import script

KEPT_MS = 400 * 24 * 3600 * 1000  # 400 days, because an entry may run once a year

_SCRIPT = script("beat_run")


class LeadEnded(Exception):
    """This process no longer leads, so its scheduler must send no more tasks."""


class Run(NamedTuple):
    """The last run of an entry of the schedule.

    ``number`` counts the entry's runs from 1. Number 0 means that the entry has not run yet: ``at`` is then the time
    from which its next run is computed. ``at``: the time of the run as ISO text. ``sent``: whether the message of the
    run was sent.
    """

    number: int
    at: str
    sent: bool = True

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return the run encoded in ``text``, a result of `encode`."""
        number, at, _, sent = json.loads(text)
        return cls(number, at, sent)

    def encode(self) -> bytes:
        """Return the run as JSON. Earlier versions read a task id from the third field, which is now empty."""
        return json.dumps((self.number, self.at, "", self.sent)).encode()


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
        fields = zip(reply[::2], reply[1::2], strict=True)
        self._texts = {name.decode(): text for name, text in fields if name}

    def last(self, name: str) -> Run | None:
        """Return the last run of the entry ``name``; ``None`` if none is recorded."""
        text = self._texts.get(name)
        return Run.parse(text) if text else None

    @property
    def unsent(self) -> list[str]:
        """The names of the entries whose last run is recorded but not sent."""
        return [name for name, text in self._texts.items() if not Run.parse(text).sent]

    def check(self) -> None:
        """Raise ``LeadEnded`` unless this process leads in this term."""
        if self._leader.fencing_token != self.token:
            raise LeadEnded

    def restore(self, entry: Any) -> None:
        """Set ``entry.last_run_at`` to the time of the entry's recorded run, in the time zone of the current value.

        The stored time has only an offset from UTC, but a schedule needs the time zone to count days. If no run of the
        entry is recorded, ``entry.last_run_at`` is recorded as run number 0.
        """
        if (run := self.last(entry.name)) is None:
            self._record(entry.name, Run(0, entry.last_run_at.isoformat()))
        else:
            at, zone = datetime.fromisoformat(run.at), entry.last_run_at.tzinfo
            entry.last_run_at = at.astimezone(zone) if at.tzinfo and zone else at

    def begin(self, name: str, at: datetime) -> None:
        """Record a run of the entry ``name`` at the time ``at``, marked as not sent.

        If the entry's previous run is not sent yet, for example because the broker was down, that run gets the new time
        and keeps its number.
        """
        before = self.last(name) or Run(0, "")
        self._record(name, Run(before.number + before.sent, at.isoformat(), sent=False))

    def mark_sent(self, name: str, run: Run) -> None:
        """Record that the message of ``run``, the last run of the entry ``name``, was sent."""
        self._record(name, run._replace(sent=True))

    def forget_removed(self, schedule: Container[str]) -> None:
        """Remove the runs of entries that are not in ``schedule`` and whose last run was more than 400 days ago.

        The delay is needed because ``django_celery_beat`` omits entries from the schedule at hours when they are not
        due.
        """
        oldest = time.time() - KEPT_MS / 1000
        for name, text in list(self._texts.items()):
            if name not in schedule and datetime.fromisoformat(Run.parse(text).at).timestamp() < oldest:
                self._record(name, None)

    def _record(self, name: str, run: Run | None) -> None:
        self.check()
        text = run.encode() if run else b""
        if self._request(name.encode(), self._texts.pop(name, b""), text) != 1:
            raise LeadEnded
        if text:
            self._texts[name] = text

    def _request(self, name: bytes = b"", before: bytes = b"", run: bytes = b"") -> Any:
        args = (b"%d" % self.token, name, before, run, b"%d" % KEPT_MS)
        reply = self._backend.drive(run_idempotent(EvalScript(_SCRIPT, (self._key,), args)))
        if isinstance(reply, Fault):
            raise fault_error(self._leader.name, reply)
        if reply == 0:
            raise LeadEnded
        return reply
