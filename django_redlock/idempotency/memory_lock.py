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
from .answers import RUNNING, Entry, Known


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

    ``answer``: what the release does with the record, see `Entry`.
    """

    def __init__(self, backend: Backend, entry: Entry, options: LockOptions) -> None:
        super().__init__(backend, MUTEX, entry.name, backend.keys_of(entry.name), options)
        self.entry = entry
        self.answer: bytes | None = b""
        self._token = b""
        self._records = _records.setdefault(backend, {})

    def begin_flow(self) -> Flow[Known | None]:
        """Begin the request. Returns ``None`` if the view must run, else the reason and a stored answer as `Known`."""
        if known := self._known():
            return known
        outcome = yield from self.acquire_flow(0.0)
        if not isinstance(outcome, Hold):
            return RUNNING
        if known := self._known():
            yield from super().release_flow()
            return known
        self._token = outcome.lease.claim.token
        self._records[self.name] = MemoryRecord(self.entry.fingerprint, self._until(), self._token)
        return None

    def release_flow(self, hold: Hold | None = None) -> Flow[None]:
        record = self._records.get(self.name)
        if record and record.token == self._token:  # else another request has begun since the lease was lost
            if self.answer:
                self._records[self.name] = record._replace(until=self._until(), answer=self.answer)
            elif self.answer is not None:
                del self._records[self.name]
        yield from super().release_flow(hold)

    def _until(self) -> float:
        return self.store.clock() + self.entry.keep

    def _known(self) -> Known | None:
        record = self._records.get(self.name)
        if record is None or record.until <= self.store.clock():
            return None
        if record.fingerprint != self.entry.fingerprint:
            return Known("mismatch")
        if record.answer:
            return Known("answer", record.answer)
        # As long as this handle doesn't hold the lock, the record may belong to a request that runs.
        return Known("in_doubt") if self.holds and self.entry.in_doubt == "refuse" else None
