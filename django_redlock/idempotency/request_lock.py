"""`RequestLock`: the lease of a running request with an idempotency key, and the record of its answer, in one Redis."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

from ..core.algorithms.quarantine import unwrap_reply
from ..core.algorithms.retries import run_idempotent
from ..core.algorithms.single_node import SingleNode
from ..core.contract import Store
from ..core.flow.replies import fault_error, parse_reply, read_outcome
from ..core.flow.requests import EvalScript, Fault, Flow
from ..core.flow.scripts import script
from ..core.keys import keys_for
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.options import LockOptions
from ..core.primitives.base import MUTEX, Primitive
from ..core.values import Claim, Lease, Refusal, Wait, millis
from .entries import Entry, Found, Known

_BEGIN, _EXTEND, _FINISH = script("idempotent_begin"), script("mutex_extend"), script("idempotent_finish")
_KNOWN = [9]  # how a reply begins when the store knows the request already


class _Record(NamedTuple):
    """What the claim for one request carries.

    ``answer`` says what a release does besides freeing the lock. ``b""``: the release removes the record, so that a
    repeated request runs the view again. Other bytes: the release stores them as the answer. ``None``: the release
    keeps the record as it is, because the view may have done its work or may still be running.
    """

    entry: Entry
    answer: bytes | None = b""


class RequestPrimitive(Primitive):
    """A mutex with a record of the request and its answer (``idempotent_begin.lua`` and ``idempotent_finish.lua``)."""

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        """Return the script call that begins a request with an idempotency key.

        The script replies with the stored answer of an earlier request, or with the reason why the view must not run.
        ``wait`` has no effect, because the script never lists a waiter.
        """
        entry = _record(claim).entry
        args = (
            claim.token,
            claim.owner,
            millis(claim.ttl),
            entry.fingerprint.encode(),
            millis(entry.keep),
            entry.in_doubt.encode(),
        )
        return EvalScript(_BEGIN, _keys(claim), args, node, partial(self.release_request, claim, node=node))

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """Return the script call that frees the lock and stores the answer in the claim's payload, see `_Record`.

        ``keep`` has no effect.
        """
        entry, answer = _record(claim)
        if answer is None:
            return MUTEX.release_request(claim, 0.0, node)
        args = claim.token, millis(entry.keep), answer, entry.fingerprint.encode()
        return EvalScript(_FINISH, _keys(claim), args, node)


REQUEST = RequestPrimitive("mutex", _BEGIN, _EXTEND, _FINISH)


class RequestLock(Lock):
    """The lock handle of one running request. ``answer``: the bytes that its release stores, see `_Record`."""

    def __init__(self, store: Store, prefix: bytes, entry: Entry, options: LockOptions) -> None:
        super().__init__(store, REQUEST, entry.name, keys_for(prefix, entry.name.encode()), options)
        self.entry = entry
        self.answer: bytes | None = None
        self.known: Known | None = None

    def begin_flow(self) -> Flow[Known | None]:
        """Begin the request. Returns ``None`` if the view must run, else `Known`: the reason, and the answer if stored.

        Raises ``LockUnavailable`` if the store is unavailable.
        """
        self.known = None
        outcome = yield from self.acquire_flow(0.0)
        if isinstance(outcome, Hold):
            return None
        return self.known or Known("running")

    def new_claim(self) -> Claim:
        return super().new_claim()._replace(payload=_Record(self.entry))

    def on_granted(self, lease: Lease) -> Hold:
        # The release of a lost lease must not remove the record.
        return super().on_granted(self._with_answer(lease, None))

    def _lease_to_release(self, lease: Lease) -> Lease:
        return self._with_answer(lease, self.answer)

    def _with_answer(self, lease: Lease, answer: bytes | None) -> Lease:
        return lease._replace(claim=lease.claim._replace(payload=_Record(self.entry, answer)))

    def _request(self, claim: Claim, wait: float, deadline: float) -> Flow[Lease | Refusal]:
        algorithm, start = cast("SingleNode", self.store.algorithm), self.store.clock()
        run = self.primitive.acquire_request(claim)
        reply = yield from run_idempotent(algorithm.quarantine.wrap(run) if algorithm.quarantine else run)
        if type(reply) is list and reply[:1] == _KNOWN:
            self.known = parse_reply(self.name, _known, reply)
            return Refusal(0.0)
        reply = unwrap_reply(reply)
        if isinstance(reply, Fault):
            raise fault_error(self.name, reply)
        return read_outcome(claim, reply, start)

    def _emit_refused(self, *facts: Any) -> None:
        if self.known is None:  # a known request was not refused by another holder
            super()._emit_refused(*facts)


def _record(claim: Claim) -> _Record:
    return cast("_Record", claim.payload)


def _keys(claim: Claim) -> tuple[bytes, bytes]:
    return claim.keys.lock, claim.keys.lock + b":answer"


def _known(reply: list[Any]) -> Known:
    _, found, answer = reply
    return Known(cast("Found", found.decode()), answer)
