"""Records of tasks in the memory of one process, for ``LocMemBackend`` and ``DummyBackend``: tests and eager mode.

The scripts ``core/lua/task_*.lua`` again, in Python, on a dict; a test runs both side by side.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha1
from typing import Any, NamedTuple

from ..backends.dummy import DummyBackend
from ..backends.locmem import LocMemBackend
from ..core.algorithms.single_node import SingleNode
from ..core.contract import Algorithm
from ..core.flow.requests import Batch, BlockThenEval, CallFunction, EvalScript
from ..core.keys import Keys
from ..core.lock_info import LockInfo, read_lock_info
from ..core.primitives.base import Primitive
from ..core.values import Seconds
from ..core.waiting.waiters import AwaitTurn

Words = Sequence[bytes]


class TaskRecord(NamedTuple):
    """One task in a record. Times are milliseconds of the clock that the store is given."""

    state: bytes
    token: bytes
    delivery_id: bytes
    due: int
    next_delivery_id: bytes
    next_due: int
    owner: bytes

    @property
    def encoded(self) -> bytes:
        """As a script would write it."""
        return b" ".join(b"%d" % part if isinstance(part, int) else part for part in self)

    def counts(self, states: bytes, now: int) -> bool:
        """Whether it is in one of these states. One that runs and has a next sending is queued too."""
        return self.state in states or (self.next_due > now and b"queued" in states)

    def at(self, now: int) -> TaskRecord:
        """What it is by now: one that ran and has a next sending is queued when its lease has run out."""
        if self.due > now or self.next_due <= now:
            return self
        return TaskRecord(b"queued", b"-", self.next_delivery_id, self.next_due, b"-", 0, self.owner)


class TaskTable:
    """The records of one location: lock's key -> task id -> entry, and the sendings that are done."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.locks: defaultdict[bytes, dict[bytes, TaskRecord]] = defaultdict(dict)
        self.done: dict[bytes, tuple[bytes, int]] = {}

    def entries(self, key: bytes, now: int) -> dict[bytes, TaskRecord]:
        """What is alive in a record."""
        entries = {task: entry.at(now) for task, entry in self.locks.pop(key, {}).items()}
        alive = {task: entry for task, entry in entries.items() if entry.due > now}
        self.locks[key] = alive
        return alive

    def put(self, key: bytes, task: bytes, entry: TaskRecord | None) -> None:
        """Write an entry, or remove it; an empty record goes too."""
        if entry is None:
            self.locks[key].pop(task, None)
        else:
            self.locks[key][task] = entry
        if not self.locks[key]:
            del self.locks[key]

    def lock_keys(self) -> list[bytes]:
        """The locks that have a record."""
        with self.changed:
            return [key for key, entries in self.locks.items() if entries]

    def describe(self, key: bytes, name: str, now: float) -> LockInfo | None:
        """What a record holds, as ``describe.lua`` tells it."""
        millis = round(now * 1000)
        with self.changed:
            entries = self.entries(key, millis)
        value = [word for task, entry in entries.items() for word in (task, entry.encoded)]
        left = max((max(entry.due, entry.next_due) for entry in entries.values()), default=0) - millis
        reply = [b"hash", value, left, 0, _digest(entries).encode()]
        return read_lock_info(name, reply) if entries else None

    def force_release(self, key: bytes, now: float, digest: str) -> bool:
        """Forget a record, with ``digest`` only if it is still of these tasks; whether there was one."""
        with self.changed:
            entries = self.entries(key, round(now * 1000))
            if not entries or digest not in ("", _digest(entries)):
                return False
            del self.locks[key]
            self.changed.notify_all()
        return True


def _digest(entries: Iterable[bytes]) -> str:
    return sha1(b"\n".join(sorted(entries)), usedforsecurity=False).hexdigest()


def _refused(entry: TaskRecord, now: int) -> list[Any]:
    return [0, entry.due - now, now * 1000, b'{"state":"%b",%b' % (entry.state, entry.owner[1:])]


def _submit(space: TaskTable, now: int, keys: Words, args: Words) -> Any:
    task, sending, owner, life, limit, counted, own, replace, remember = args
    entries = space.entries(keys[0], now)
    mine = same = entries.get(task)
    if mine and own != b"1" and mine.delivery_id != sending:
        mine = None
    rivals = [
        (entry.state != b"queued", other, entry)
        for other, entry in entries.items()
        if entry is not mine and entry.counts(counted, now)
    ]
    twins = [rival for rival in rivals if rival[1] == task and rival[2].counts(b"queued", now)]
    if not mine and (twins or len(rivals) >= int(limit)):
        idle, other, rival = min(rivals) if replace == b"1" else [*twins, *rivals][0]
        if replace != b"1" or idle:
            return _refused(rival, now)
        space.put(keys[0], other, None)
        space.done[keys[0] + b":done:" + rival.delivery_id] = b"replaced", max(rival.due, now + int(remember))
    record = TaskRecord(b"queued", b"-", sending, now + int(life), b"-", 0, owner)
    if same and same.state == b"running":
        record = same._replace(next_delivery_id=sending, next_due=now + int(life))
    space.put(keys[0], task, record)
    return now * 1000


def _start(space: TaskTable, now: int, keys: Words, args: Words) -> Any:
    token, owner, ttl, task, sending, limit, counted, stays, _ = args
    done, until = space.done.get(keys[2], (b"", 0))
    if until > now:
        return [0, 0, now * 1000, b'{"state":"%b"}' % done]
    entries = space.entries(keys[0], now)
    mine = entries.get(task)
    rivals = [entry for other, entry in entries.items() if other != task and entry.counts(counted, now)]
    following, life = (sending, now + int(stays)) if stays != b"0" else (b"-", 0)
    if mine and mine.state == b"running":
        if mine.token != token:
            return _refused(mine, now)
        following, life = mine.next_delivery_id, mine.next_due
    elif len(rivals) >= int(limit) and not (mine and b"queued" in counted):
        return _refused(rivals[0], now)
    elif mine and life:
        life = mine.due
    space.put(keys[0], task, TaskRecord(b"running", token, sending, now + int(ttl), following, life, owner))
    return now * 1000


def _extend(space: TaskTable, now: int, keys: Words, args: Words) -> Any:
    for task, entry in space.entries(keys[0], now).items():
        if entry.token == args[0]:
            space.put(keys[0], task, entry._replace(due=now + int(args[1])))
            return 1
    return 0


def _queued_again(space: TaskTable, key: bytes, task: bytes, entry: TaskRecord, now: int, keep: int) -> None:
    if entry.next_due > now:
        again = TaskRecord(b"queued", b"-", entry.next_delivery_id, entry.next_due, b"-", 0, entry.owner)
    else:
        again = TaskRecord(b"queued", b"-", entry.delivery_id, now + keep, b"-", 0, entry.owner)
    space.put(key, task, again if entry.next_due > now or keep else None)


def _end(space: TaskTable, now: int, keys: Words, args: Words) -> Any:
    token, task, _, remember, keep = args
    if remember != b"0":
        space.done[keys[3]] = b"ended", now + int(remember)
    entry = space.entries(keys[0], now).get(task)
    if entry is None or entry.token != token:
        return 0
    _queued_again(space, keys[0], task, entry, now, int(keep))
    return 1


def _cancel(space: TaskTable, now: int, keys: Words, args: Words) -> Any:
    task, sending = args
    entry = space.entries(keys[0], now).get(task)
    if entry is None:
        return 0
    if entry.state == b"running":
        if entry.next_delivery_id == b"-" or sending not in (b"", entry.next_delivery_id):
            return 0
        space.put(keys[0], task, entry._replace(next_delivery_id=b"-", next_due=0))
        return 1
    if sending not in (b"", entry.delivery_id):
        return 0
    space.put(keys[0], task, None)
    return 1


def _requeue_dead(space: TaskTable, now: int, keys: Words, args: Words) -> Any:
    task, process, keep = args
    space.done.pop(keys[3], None)
    entry = space.entries(keys[0], now).get(task)
    if entry is None or entry.state != b"running" or process not in entry.owner:
        return 0
    _queued_again(space, keys[0], task, entry, now, int(keep))
    return 1


SCRIPTS_IN_PYTHON: dict[str, Callable[[TaskTable, int, Words, Words], Any]] = {
    "task_submit": _submit,
    "task_start": _start,
    "task_extend": _extend,
    "task_end": _end,
    "task_cancel": _cancel,
    "task_requeue_dead": _requeue_dead,
}


class MemoryStore:
    """What a flow asks of a store, done on the `TaskTable` that is annexed to a backend's locks in memory, so that it
    lists and releases these records too. A dummy backend's forgets everything, so that it grants all.
    """

    def __init__(self, backend: LocMemBackend | DummyBackend) -> None:
        self.alias = backend.alias
        self.hook = backend.hook
        self.clock = backend.clock
        self.algorithm: Algorithm = SingleNode(backend.clock)
        self._backend = backend

    @property
    def _table(self) -> TaskTable:
        return self._backend.beside(TaskTable) if isinstance(self._backend, LocMemBackend) else TaskTable()

    def local_queue_for(self, primitive: Primitive) -> None:
        """None: who waits here looks again when something has changed."""

    def server_of(self, keys: Keys) -> str:
        """There is one."""
        return ""

    def check_ttl(self, ttl: Seconds) -> float:
        """As the backend's."""
        return self._backend.check_ttl(ttl)

    def perform(self, request: Any) -> Any:
        """Carry out ``request``, blocking."""
        if isinstance(request, EvalScript):
            return self._run(request)
        if isinstance(request, Batch):
            return [self._run(run) for run in request.script_calls]
        if isinstance(request, BlockThenEval):
            space = self._table
            with space.changed:
                space.changed.wait(request.seconds)
            return self._run(request.script_call)
        if isinstance(request, CallFunction):
            return request.function(*request.args)
        if isinstance(request, AwaitTurn):
            return request.event.wait(request.seconds)
        return time.sleep(request.seconds)

    async def aperform(self, request: Any) -> Any:
        """`perform` for asyncio."""
        if isinstance(request, AwaitTurn):
            return await request.event.wait_async(request.seconds)
        return await asyncio.to_thread(self.perform, request)

    def _run(self, run: EvalScript) -> Any:
        space = self._table
        with space.changed:
            answer = SCRIPTS_IN_PYTHON[run.script.name](space, round(self.clock() * 1000), run.keys, run.args)
            space.changed.notify_all()
        return 1 if answer == 0 and isinstance(self._backend, DummyBackend) else answer
