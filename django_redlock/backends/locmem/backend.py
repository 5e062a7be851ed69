"""Locks in the memory of one process, for tests and development. They behave like locks in Redis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

from ...core.algorithms.single_node import SingleNode
from ...core.contract import Store
from ...core.flow.replies import NEVER
from ...core.flow.requests import AwaitEvent, BlockThenEval, EvalScript, Flow, FlowRequest
from ...core.keys import lock_name_of
from ...core.lock_info import LockInfo, claim_digest, read_lock_info
from ...core.primitives.base import KINDS, MAX_BLOCK, PERIODIC, Primitive
from ...core.primitives.fair import FAIR
from ...core.primitives.multi import ADOPT
from ...core.process.caller import WakeEvent
from ...core.process.fork import on_fork
from ...core.values import Claim, Lease, Refusal
from ..storage import StorageBackend
from .table import LockTable, described, digest_of

_tables: dict[str, LockTable] = {}
on_fork(_tables.clear)


def wake_all() -> None:
    """Wake all waiters in memory, so that they read the clock again. Called by tests that have moved the clock."""
    for table in list(_tables.values()):
        table.wake_all()


class LocMemBackend(StorageBackend):
    """Locks in the memory of one process. Options as for `Backend`.

    Backends with the same ``location`` and ``key_prefix`` share their locks. There is no history.
    """

    kinds = KINDS
    fair = FAIR
    adopting: Primitive | None = ADOPT
    periodic = PERIODIC
    does_io = False
    max_wait = MAX_BLOCK

    @property
    def table(self) -> LockTable:
        # setdefault() is atomic: two threads must not get different tables.
        where = str(self.location)
        return _tables.get(where) or _tables.setdefault(where, LockTable())

    def clear(self) -> None:
        """Delete all locks of this location, as FLUSHDB does on a Redis server."""
        if (table := _tables.pop(str(self.location), None)) is not None:
            table.wake_all()

    def attempt(
        self, primitive: Primitive, claim: Claim, asked: float, deadline: float, wake: Callable[[], Any]
    ) -> Lease | Refusal:
        table = self.table
        with table.mutex:
            return table.acquire(primitive, claim, self.clock(), wake if asked < deadline else None)

    def abandon(self, primitive: Primitive, claim: Claim) -> None:
        try:
            self.release(claim)
        except Exception:  # noqa: BLE001  (for example, a signal handler has interrupted a change of the table)
            super().abandon(primitive, claim)

    def extend(self, lease: Lease, ttl: float) -> Lease | None:
        now, table = self.clock(), self.table
        with table.mutex:
            held = now < lease.valid_until and table.extend(lease.claim, now, now + ttl)
        return lease.extended(now, ttl) if held else None

    def release(self, claim: Claim, keep: float = 0.0) -> bool:
        now, table = self.clock(), self.table
        without_holder = {"holder": b"", "owner": b'{"state":"done",' + claim.owner[1:]} if keep > 0 else {}
        with table.mutex:
            held = table.change(claim, now, now + max(keep, 0.0), **without_holder)
            table.leave(claim)
            table.wake(*(keys.lock for keys in claim.all_keys))  # also of a kept lock: its end is nearer now
        return held

    # ── inspection ───────────────────────────────────────────────────────────────────────────

    def describe_once(self, name: str) -> LockInfo | None:
        key, table, now = self.keys_of(name).lock, self.table, self.clock()
        with table.mutex:
            if not (entries := table.live_holders(key, now)):
                return table.tasks.describe(key, name, now)
            queue = [b" %b" % each.claim.owner for each in table.waiters.get(key, {}).values()]
        last = max(entry.expires for entry in entries)
        left = -1 if last == math.inf else round((last - now) * 1000)
        return read_lock_info(name, [*described(entries), left, len(queue), digest_of(entries).encode(), queue])

    def names(self) -> Iterable[str]:
        table, prefix = self.table, self.encoded_prefix
        with table.mutex:
            return [name for key in (*table.held, *table.tasks.locks) if (name := lock_name_of(prefix, key))]

    def force_release_once(self, name: str, digest: str) -> bool:
        key, table, now = self.keys_of(name).lock, self.table, self.clock()
        with table.mutex:
            if not (entries := table.live_holders(key, now)):
                return table.tasks.force_release(key, now, digest)
            whole = digest in ("", digest_of(entries))
            table.held[key] = [] if whole else [entry for entry in entries if claim_digest(entry.claim) != digest]
            table.wake(key)
            return len(table.held[key]) < len(entries)

    # ── records of tasks ─────────────────────────────────────────────────────────────────────

    def task_store(self) -> Store:
        """Return a copy of this backend that acquires locks with the scripts for task records."""
        twin = copy(self)
        twin.algorithm = SingleNode(self.clock)
        return twin

    def run_script(self, request: EvalScript) -> Any:
        table = self.table
        with table.mutex:
            return table.tasks.run(request.script.name, round(self.clock() * 1000), request.keys, request.args)

    def perform(self, request: FlowRequest) -> Any:
        if type(request) is BlockThenEval:
            return self.drive(self._run_when_changed(request))
        return super().perform(request)

    async def aperform(self, request: FlowRequest) -> Any:
        if type(request) is BlockThenEval:
            return await self.adrive(self._run_when_changed(request))
        return await super().aperform(request)

    def _run_when_changed(self, request: BlockThenEval) -> Flow[Any]:
        """Run a script. If it refuses a call, run it again when a task record has changed.

        The wait ends after ``request.seconds``.
        """
        woken, waiting = WakeEvent(), self.table.tasks.waiting
        waiting.add(woken)
        try:
            reply = yield request.call
            if isinstance(reply, list) and not reply[0] and reply[1] != NEVER:
                yield AwaitEvent(woken, request.seconds)
                reply = yield request.call
        finally:
            waiting.discard(woken)
        return reply
