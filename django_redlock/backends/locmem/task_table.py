"""Task records in the memory of one process: the scripts ``core/lua/task_*.lua`` in Python, on a dict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha1
from typing import Any, NamedTuple

from ...core.flow.replies import NEVER
from ...core.lock_info import LockInfo, read_lock_info
from ...core.process.caller import WakeEvent


class TaskRecord(NamedTuple):
    """The record of one queued or running task, with the fields of ``task_record.lua``.

    Times are milliseconds of the store's clock.
    """

    state: bytes
    token: bytes
    delivery_id: bytes
    due: int
    next_delivery_id: bytes
    next_due: int
    owner: bytes

    @property
    def encoded(self) -> bytes:
        return b" ".join(b"%d" % part if isinstance(part, int) else part for part in self)

    def counts(self, states: bytes, now: int) -> bool:
        """Return whether the state is in ``states``. A running task with a next delivery also counts as queued."""
        return self.state in states or (self.next_due > now and b"queued" in states)

    def at(self, now: int) -> TaskRecord | None:
        """Return the record at the time ``now``; ``None`` if it has expired."""
        return self if self.due > now else self.stopped(now, 0)

    def stopped(self, now: int, keep: int) -> TaskRecord | None:
        """Return the record after the end of a run; ``None`` if nothing remains.

        A task with a next delivery is queued for that delivery. Otherwise the task is queued for ``keep`` milliseconds.
        """
        if self.next_due > now:
            return queued(self.next_delivery_id, self.next_due, self.owner)
        return queued(self.delivery_id, now + keep, self.owner) if keep else None

    def refusal(self, now: int) -> list[Any]:
        """Return a script's reply to a call that this record refuses at the time ``now``."""
        return [0, self.due - now, now * 1000, b'{"state":"%b",%b' % (self.state, self.owner[1:])]


def queued(delivery_id: bytes, due: int, owner: bytes) -> TaskRecord:
    """Return the record of a task that is queued until ``due``."""
    return TaskRecord(b"queued", b"-", delivery_id, due, b"-", 0, owner)


class TaskTable:
    """The records of tasks of one location by lock key and task id.

    ``past``: the time until which an ended or replaced delivery is kept, by key and delivery. ``messages``: messages
    of calls that were refused at their start, by lock key and delivery id. When a run ends, one is sent again.
    """

    def __init__(self) -> None:
        self.waiting: set[WakeEvent] = set()  # set at each change
        self.locks: dict[bytes, dict[bytes, TaskRecord]] = {}
        self.past: dict[tuple[bytes, bytes], int] = {}
        self.messages: dict[bytes, dict[bytes, bytes]] = {}

    def run(self, script: str, now: int, keys: Sequence[bytes], args: Sequence[bytes]) -> Any:
        """Run the Python port of the Lua script ``script`` at the time ``now`` (milliseconds). Returns its reply."""
        entries = self._live(keys[0], now)
        before = dict(entries)
        reply = getattr(TaskScripts(self, keys, entries, now), script.removeprefix("task_"))(*args)
        self.locks[keys[0]] = entries
        if not entries:
            del self.locks[keys[0]]
        if entries != before:  # a refusal wakes no waiters, which would wake each other without end
            self.wake_all()
        return reply

    def wake_all(self) -> None:
        for event in tuple(self.waiting):
            event.set()

    def _live(self, key: bytes, now: int) -> dict[bytes, TaskRecord]:
        return {task: live for task, entry in self.locks.get(key, {}).items() if (live := entry.at(now))}

    def describe(self, key: bytes, name: str, now: float) -> LockInfo | None:
        millis = round(now * 1000)
        if not (entries := self._live(key, millis)):
            return None
        value = [word for task, entry in entries.items() for word in (task, entry.encoded)]
        left = max(max(entry.due, entry.next_due) for entry in entries.values()) - millis
        return read_lock_info(name, [b"hash", value, left, 0, _digest(entries).encode()])

    def force_release(self, key: bytes, now: float, digest: str) -> bool:
        entries = self._live(key, round(now * 1000))
        if not entries or digest not in ("", _digest(entries)):
            return False
        del self.locks[key]
        self.wake_all()
        return True


def _digest(entries: Iterable[bytes]) -> str:
    return sha1(b"\n".join(sorted(entries)), usedforsecurity=False).hexdigest()


class TaskScripts:
    """The scripts ``task_*.lua`` on the records ``entries`` of one lock, at the time ``now`` (milliseconds).

    Each method has the name, the arguments and the reply of a script. ``keys``: the KEYS of the script.
    """

    def __init__(self, table: TaskTable, keys: Sequence[bytes], entries: dict[bytes, TaskRecord], now: int) -> None:
        self._table, self._keys, self._entries, self._now = table, keys, entries, now

    def submit(self, *args: bytes) -> Any:
        task, delivery_id, owner, ttl, limit, states, own, replace, done_ttl = args
        entries, now = self._entries, self._now
        same = entries.get(task)
        mine = same if same and (own == b"1" or same.delivery_id == delivery_id) else None
        rivals = [
            (entry.state != b"queued", other, entry)
            for other, entry in entries.items()
            if entry is not mine and entry.counts(states, now)
        ]
        again = mine and mine.state == b"queued" and mine.delivery_id == delivery_id
        replaced = mine.next_delivery_id if mine and again else b"-"
        twins = [rival for rival in rivals if rival[1] == task and rival[2].counts(b"queued", now)]
        if not mine and (twins or len(rivals) >= int(limit)):
            running, other, rival = min(rivals) if replace == b"1" else [*twins, *rivals][0]
            if running or replace != b"1" or rival.delivery_id == b"-":
                return rival.refusal(now)
            del entries[other]
            replaced = rival.delivery_id
            self._remember(self._keys[0], replaced, max(rival.due, now + int(done_ttl)))
            self._drop_message(replaced)
        record = queued(delivery_id, now + int(ttl), owner)._replace(next_delivery_id=replaced)
        if same and same.state == b"running":
            if same.delivery_id == delivery_id:
                return now * 1000
            record = same._replace(next_delivery_id=delivery_id, next_due=record.due)
        entries[task] = record
        return now * 1000

    def start(self, *args: bytes) -> Any:
        token, owner, ttl, task, delivery_id, limit, states, period, _, number = args
        now = self._now
        if self._is_past(self._keys[6], number):
            return [0, NEVER, now * 1000, b'{"state":"ended"}']
        if self._is_past(self._keys[0], delivery_id):
            return [0, NEVER, now * 1000, b'{"state":"replaced"}']
        if blocker := self._blocker(task, token, states, limit):
            return blocker.refusal(now)
        mine, due = self._entries.get(task), now + int(ttl)
        if mine and mine.state == b"running":
            due = max(due, mine.due)
            following = mine.next_delivery_id, mine.next_due
        else:
            following = (delivery_id, mine.due if mine else now + int(period)) if period != b"0" else (b"-", 0)
        self._entries[task] = TaskRecord(b"running", token, delivery_id, due, *following, owner)
        self._drop_message(delivery_id)
        return now * 1000

    def put_off(
        self, task: bytes, delivery_id: bytes, limit: bytes, states: bytes, message: bytes, _ttl: bytes, most: bytes
    ) -> int:
        if self._is_past(self._keys[0], delivery_id):
            return 1
        if self._blocker(task, b"", states, limit) is None:
            return 0
        messages = self._table.messages.setdefault(self._keys[0], {})
        if len(messages) < int(most):
            messages[delivery_id] = message
        return 1

    def extend(self, token: bytes, ttl: bytes) -> int:
        for task, entry in self._entries.items():
            if entry.token == token:
                self._entries[task] = entry._replace(due=self._now + int(ttl))
                return 1
        return 0

    def end(self, token: bytes, task: bytes, done_ttl: bytes, keep: bytes, number: bytes, owner: bytes) -> Any:
        entries, now, ttl = self._entries, self._now, int(done_ttl)
        if ttl > 0:
            self._remember(self._keys[6], number, now + ttl)
        entry = entries.get(task)
        if not entry or entry.state != b"running" or not entry.token.startswith(token) or owner not in entry.owner:
            return 0
        if ttl > 0 and entry.next_delivery_id == entry.delivery_id:
            entry = entry._replace(next_delivery_id=b"-")
        del entries[task]
        if (stopped := entry.stopped(now, int(keep))) is not None:
            entries[task] = stopped
        if not (messages := self._table.messages.get(self._keys[0])):
            return 1
        return [1, messages.pop(next(iter(messages)))]

    def cancel(self, task: bytes, delivery_id: bytes) -> int:
        if (entry := self._entries.get(task)) is None:
            return 0
        running = entry.state == b"running"
        waiting = entry.next_delivery_id if running else entry.delivery_id
        period = running and waiting == entry.delivery_id
        if period or waiting == b"-" or delivery_id not in (b"", waiting):
            return 0
        if running:
            self._entries[task] = entry._replace(next_delivery_id=b"-", next_due=0)
        else:
            del self._entries[task]
            if delivery_id:
                self._table.past.pop((self._keys[0], entry.next_delivery_id), None)
        return 1

    def rename(self, task: bytes, renamed: bytes, owner: bytes) -> int:
        entries = self._entries
        if task == b"?":
            task = next((each for each in entries if each[:1] == task and entries[each].state == b"queued"), task)
        entry = entries.get(task)
        if entry is None or entry.state != b"queued" or renamed in entries:
            return 0
        entries[renamed] = entries.pop(task)._replace(owner=owner)
        return 1

    def waiter_remove(self, *_: bytes) -> int:
        return 0  # waiters are not listed in memory

    def _blocker(self, task: bytes, token: bytes, states: bytes, limit: bytes) -> TaskRecord | None:
        """Return the record that refuses the start of ``task``, see ``task_record.lua``; ``None`` if it may start."""
        mine = self._entries.get(task)
        if mine and mine.state == b"running":
            return mine if mine.token != token else None
        others = [entry for other, entry in self._entries.items() if other != task]
        rivals = [entry for entry in others if entry.counts(states, self._now)]
        if mine and b"queued" in states:
            rivals = [entry for entry in rivals if entry.state == b"running" and b"running" in states]
        return rivals[0] if len(rivals) >= int(limit) else None

    def _is_past(self, key: bytes, delivery: bytes) -> bool:
        return self._table.past.get((key, delivery), 0) > self._now

    def _remember(self, key: bytes, delivery: bytes, due: int) -> None:
        past = self._table.past
        past.pop((key, delivery), None)
        while past and past[first := next(iter(past))] <= self._now:
            del past[first]
        past[key, delivery] = due

    def _drop_message(self, delivery_id: bytes) -> None:
        self._table.messages.get(self._keys[0], {}).pop(delivery_id, None)
