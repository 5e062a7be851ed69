"""`MemoryRequestLock`: a `RequestLock` with its records in a dict, for ``LocMemBackend`` and ``DummyBackend``."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..backends.base import Backend
from ..core.flow.requests import Flow
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.options import LockOptions
from ..core.primitives.base import MUTEX
from ..core.process.mutex import state_mutex
from .entries import Entry, Known


class MemoryRecord(NamedTuple):
    """The record of a request that has begun. ``answer`` is empty until the request has ended.

    ``token``: that of the request's lock. ``until``: the time at which the record expires, by the backend's clock.
    """

    fingerprint: str
    until: float
    token: bytes
    answer: bytes = b""


_records: WeakKeyDictionary[Backend, dict[str, MemoryRecord]] = WeakKeyDictionary()


class MemoryRequestLock(Lock):
    """The lock handle of one running request in memory. A mutex with the entry's name protects the request's record.

    ``answer``: what the release does with the record. Bytes are stored, ``b""`` removes the record, ``None`` keeps it.
    """

    def __init__(self, backend: Backend, entry: Entry, options: LockOptions) -> None:
        super().__init__(backend, MUTEX, entry.name, backend.keys_of(entry.name), options)
        self.entry = entry
        self.answer: bytes | None = b""
        self._own = b""  # the token of the request that this handle has begun
        self._records = _records.setdefault(backend, {})

    def begin_flow(self) -> Flow[Known | None]:
        """Begin the request. Returns ``None`` if the view must run, else the reason and a stored answer as `Known`."""
        now = self.store.clock()
        if known := self._known(now):
            return known
        outcome = yield from self.acquire_flow(0.0)
        if not isinstance(outcome, Hold):
            return Known("running")
        if known := self._known(now):
            yield from super().release_flow()
            return known
        self._own = outcome.lease.claim.token
        self._write(MemoryRecord(self.entry.fingerprint, now + self.entry.keep, self._own), begins=True)
        return None

    def release_flow(self, hold: Hold | None = None) -> Flow[None]:
        if self.answer:
            until = self.store.clock() + self.entry.keep
            self._write(MemoryRecord(self.entry.fingerprint, until, self._own, self.answer))
        elif self.answer is not None:
            self._write(None)
        yield from super().release_flow(hold)

    def _write(self, record: MemoryRecord | None, begins: bool = False) -> None:
        """Replace the record of this request, and remove all expired records, so that they don't fill the memory.

        Unless this request ``begins``, a record of another request stays: that one has begun since the lease was lost.
        """
        now = self.store.clock()
        with state_mutex:  # else a record that another thread writes might be removed as expired
            for name in [name for name, each in self._records.items() if each.until <= now]:
                del self._records[name]
            found = self._records.get(self.name)
            if found is not None and found.token != self._own and not begins:
                return
            self._records.pop(self.name, None)
            if record:
                self._records[self.name] = record

    def _known(self, now: float) -> Known | None:
        record = self._records.get(self.name)
        if record is None or record.until <= now:
            return None
        if record.fingerprint != self.entry.fingerprint:
            return Known("mismatch")
        if record.answer:
            return Known("answer", record.answer)
        # As long as this handle doesn't hold the lock, the record may belong to a request that runs.
        return Known("in_doubt") if self.holds and self.entry.in_doubt == "refuse" else None
