"""`RequestLock`: the lease of a running request with an idempotency key, and the record of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast, get_args
from weakref import WeakKeyDictionary

from ..backends.base import Backend
from ..backends.dummy import DummyBackend
from ..backends.locmem.backend import LocMemBackend
from ..core.algorithms.cluster import Cluster
from ..core.algorithms.single_node import SingleNode
from ..core.flow.requests import EvalScript, Flow
from ..core.flow.scripts import script
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.options import LockOptions
from ..core.primitives.base import MUTEX, Primitive
from ..core.values import Claim, Seconds, Wait, millis
from ..errors import LockNotSupported
from .answers import RUNNING, Entry, Found, Known

_KNOWN = get_args(Found)  # in a refusal, in place of the holder
_BEGIN, _EXTEND, _FINISH = script("idempotent_begin"), script("mutex_extend"), script("idempotent_finish")


def request_lock(backend: Backend, entry: Entry, ttl: Seconds | None) -> RequestLock:
    """Return the lock handle for one request. ``ttl``: its lease; ``None`` for the backend's default.

    Raises ``LockNotSupported`` unless ``backend`` is a ``RedisBackend``, a ``LocMemBackend`` or a ``DummyBackend``,
    because other backends can't change the lock and the record of the answer in one atomic step.
    """
    options = LockOptions(backend.ttl if ttl is None else backend.check_ttl(ttl), owner=entry.label, raises_loss=False)
    if type(backend.algorithm) in (SingleNode, Cluster):
        return RequestLock(backend, entry, options)
    if isinstance(backend, LocMemBackend | DummyBackend):
        return MemoryRequestLock(backend, entry, options)
    raise LockNotSupported(
        entry.name,
        f"idempotent() keeps answers in one Redis (RedisBackend), not in {type(backend).__name__}; "
        "with database= it can use any backend",
    )


@dataclass(slots=True, eq=False)
class Running:
    """The stored ``entry`` of a running request, and what a release does to it.

    ``answer`` is ``b""``: remove the entry, so that a repeat runs the view. Other bytes: store them as the answer.
    ``None``: keep the entry, because the view may have done its work or may still be running.
    """

    entry: Entry
    answer: bytes | None = b""


class RequestPrimitive(Primitive):
    """A mutex with a record of the request and its answer. The ``record`` of a claim is a `Running`."""

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        """Return the script call that begins an idempotent request, or finds its answer.

        ``wait`` has no effect: the script lists no waiters.
        """
        entry: Entry = claim.record.entry
        terms = entry.fingerprint.encode(), millis(entry.keep), entry.in_doubt.encode()
        args = claim.token, claim.owner, millis(claim.ttl), *terms
        return EvalScript(_BEGIN, _keys(claim), args, node, partial(self.release_request, claim, node=node))

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """Return the script call that frees the lock, and stores the answer or removes the record, see `Running`."""
        running: Running = claim.record
        if running.answer is None:
            return MUTEX.release_request(claim, 0.0, node)
        args = claim.token, millis(running.entry.keep), running.answer, running.entry.fingerprint.encode()
        return EvalScript(_FINISH, _keys(claim), args, node)


def _keys(claim: Claim) -> tuple[bytes, bytes]:
    return claim.keys.lock, claim.keys.lock + b":answer"


REQUEST = RequestPrimitive("mutex", _BEGIN, _EXTEND, _FINISH)


class RequestLock(Lock):
    def __init__(self, backend: Backend, entry: Entry, options: LockOptions) -> None:
        super().__init__(backend, REQUEST, entry.name, backend.keys_of(entry.name), options)
        self.running = Running(entry)

    def begin_flow(self) -> Flow[Known | None]:
        """Begin the request. Returns ``None`` if the view must run, else `Known`, with the answer if it is stored.

        Raises ``LockUnavailable`` if the store is unavailable.
        """
        outcome = yield from self.acquire_flow(0.0, self.new_claim()._replace(record=self.running))
        if isinstance(outcome, Hold):
            self.running.answer = None  # from now on, a release must not remove the record: the view may run
            return None
        return Known(cast("Found", outcome.holder), outcome.answer) if outcome.holder in _KNOWN else RUNNING

    def emit_refused(self, waited: float, reason: str, holder: str = "") -> None:
        if holder not in _KNOWN:  # a known request was not refused by another holder
            super().emit_refused(waited, reason, holder)


class MemoryRecord(NamedTuple):
    """A running or answered request in memory."""

    fingerprint: str
    until: float  # when the record expires, by the backend's clock
    token: bytes  # that of the request's lock
    answer: bytes = b""  # empty until the request has ended


_records: WeakKeyDictionary[Backend, dict[str, MemoryRecord]] = WeakKeyDictionary()


class MemoryRequestLock(RequestLock):
    """A `RequestLock` with its records in a dict, for ``LocMemBackend`` and ``DummyBackend``."""

    def __init__(self, backend: Backend, entry: Entry, options: LockOptions) -> None:
        super().__init__(backend, entry, options)
        self._records = _records.setdefault(backend, {})

    def begin_flow(self) -> Flow[Known | None]:
        known = self._known() or (yield from super().begin_flow())
        if known:
            return known
        if known := self._known(held=True):
            yield from super().release_flow()
            return known
        token = self.required_hold().lease.claim.token
        self._records[self.name] = MemoryRecord(self.running.entry.fingerprint, self._until(), token)
        return None

    def release_flow(self, hold: Hold | None = None) -> Flow[None]:
        hold, record = hold or self.required_hold(), self._records.get(self.name)
        if record and record.token == hold.lease.claim.token:  # else another request has begun since a lost lease
            if self.running.answer:
                self._records[self.name] = record._replace(until=self._until(), answer=self.running.answer)
            elif self.running.answer is not None:
                del self._records[self.name]
        yield from super().release_flow(hold)

    def _until(self) -> float:
        return self.store.clock() + self.running.entry.keep

    def _known(self, held: bool = False) -> Known | None:
        """Return why the view must not run, as `idempotent_begin.lua` does. ``held``: this request has the lock."""
        record = self._records.get(self.name)
        if record is None or record.until <= self.store.clock():
            return None
        if record.fingerprint != self.running.entry.fingerprint:
            return Known("mismatch")
        if record.answer:
            return Known("answer", record.answer)
        return Known("in_doubt") if held and self.running.entry.in_doubt == "refuse" else None
