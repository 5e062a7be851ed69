"""ReplicaLock: a grant of the primary counts when enough replicas have acknowledged it (ncghost1/Redis-ReplicaLock).

The script and WAIT are sent in one pipeline, so WAIT costs no extra round trip. The lease begins before the request is
sent, so the time that WAIT takes is part of the lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import LockError, LockUnavailable
from ..flow.replies import fault_error, is_confirmed, is_grant, required_replicas, unwrap_reply
from ..flow.requests import EvalAndWait, EvalScript, Fault, Flow
from ..primitives.base import Primitive
from ..values import Claim, Lease
from .quarantine import Quarantine, replica_quarantine
from .retries import run_idempotent
from .single_node import SingleNode

_ADJUSTMENTS = 3  # requests in one attempt, while the primary reports another number of replicas


class Replicated(SingleNode):
    """The algorithm for a primary with replicas. All methods return flows (generators of requests).

    ``replicas``: the replicas that must acknowledge: ``"majority"``, ``"all"`` or a number. ``wait``: the longest wait
    for acknowledgements, in seconds. ``lag``: seconds without an acknowledgement after which a replica counts as
    absent.
    """

    hand_over = None  # type: ignore[assignment]

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        key_prefix: str,
        max_ttl: float,
        replicas: str | int,
        wait: float,
        lag: int,
        quarantine: bool,
    ) -> None:
        super().__init__(clock)
        self._wait = wait
        self._new_quarantine: Callable[[int], Quarantine] | None = None
        if quarantine:
            self._new_quarantine = lambda waits: replica_quarantine(key_prefix, max_ttl, lag, waits, str(replicas))
        self._expect(replicas if isinstance(replicas, int) else 1)

    def _expect(self, replicas: int) -> None:
        self.quarantine = self._new_quarantine(replicas) if self._new_quarantine else None
        # The number and the quarantine, whose arguments contain the number, are replaced together, for other threads.
        self._expected = replicas, self.quarantine

    def acquire_free(self, primitive: Primitive, claim: Claim) -> Flow[Lease | None]:
        """Return ``None``: SET NX is not used, because a grant needs the acknowledgements of replicas."""
        return None
        yield

    def _waits_apart(self, primitive: Primitive, claim: Claim) -> bool:
        return True

    def run_granting(self, call: EvalScript, name: str) -> Flow[Any]:
        """Run a script that grants or refuses the lock ``name``. Returns the reply or a `Fault`.

        If too few replicas acknowledge a grant, the compensation of ``call`` revokes it.
        """
        replies, missed = yield from self._run_confirmed(name, call, guarded=True)
        if isinstance(replies, Fault):
            return replies
        reply = unwrap_reply(replies[0])
        if missed and is_grant(reply):
            undone = (yield from run_idempotent(call.compensation())) if call.compensation else None
            return Fault(missed, unconfirmed=isinstance(undone, Fault))
        return reply

    def _run_confirmed(
        self, name: str, *calls: EvalScript, guarded: bool = False
    ) -> Flow[tuple[list[Any] | Fault, LockError | None]]:
        """Run scripts, and wait for the acknowledgements of the replicas.

        Returns a pair: the replies, or a `Fault` if the primary did not reply; and the error to raise if too few
        replicas have acknowledged, or ``None``. ``guarded``: prepend the quarantine script to each script. If the last
        reply says that another number of replicas must acknowledge, all scripts are repeated with that number.
        """
        for _ in range(_ADJUSTMENTS):
            expected, guard = self._expected
            wrapped = [guard.wrap(call) for call in calls] if guarded and guard else calls
            answer = yield from run_idempotent(EvalAndWait(wrapped, expected, self._wait))
            if isinstance(answer, Fault):
                return answer, None
            replies, count = answer
            needed = required_replicas(replies[-1])
            if needed in (None, expected):
                if isinstance(count, Fault):
                    return replies, fault_error(name, count)
                few = f"{count} of {expected} replicas confirmed within {self._wait:g} s"
                return replies, LockUnavailable(name, few) if count < expected else None
            self._expect(needed)
        return Fault(LockUnavailable(name, "the number of replicas keeps changing")), None

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """Extend many leases with one WAIT. The outcome is a `Fault` if too few replicas have acknowledged."""
        start = self.clock()
        due = {lease.claim.token: (lease, ttl) for lease, ttl in leases if start < lease.valid_until}
        outcomes: dict[bytes, Lease | Fault | None] = {}
        if due:
            calls = [primitive.extend_request(lease.claim, ttl) for lease, ttl in due.values()]
            if guard := self.quarantine:  # a restarted or promoted primary may have lost locks
                calls.append(guard.noop_request())
            name = leases[0][0].claim.name if len(leases) == 1 else ""
            replies, missed = yield from self._run_confirmed(name, *calls)
            if isinstance(replies, Fault):
                replies = [replies] * len(due)
            for (token, (lease, ttl)), reply in zip(due.items(), replies, strict=False):  # without the guard's
                outcomes[token] = _outcome(lease, ttl, reply, start, missed)
                if reply == 0 and guard:
                    outcomes[token] = yield from self._restore(primitive, lease, ttl, start, guard)
        return [outcomes.get(lease.claim.token) for lease, _ in leases]

    def _restore(
        self, primitive: Primitive, lease: Lease, ttl: float, start: float, guard: Quarantine
    ) -> Flow[Lease | Fault | None]:
        """Restore the lock of ``lease`` on a primary that has lost it, if its quarantine excludes other holders.

        ``start``: the time at which the extension was sent, in monotonic seconds.
        """
        name, restore = lease.claim.name, guard.restore_request(primitive, lease.claim, ttl)
        yield from self._run_confirmed(name, guard.noop_request())  # alone: nobody waits for replicas in a quarantine
        replies, missed = yield from self._run_confirmed(name, restore)
        if isinstance(replies, Fault):
            return replies
        late = self.clock() >= lease.valid_until
        return None if late else _outcome(lease, ttl, replies[0], start, missed)

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Release the lock for all attempts of ``claim``."""
        return super().release(primitive, claim.all_attempts(), keep)


def _outcome(lease: Lease, ttl: float, reply: Any, start: float, missed: LockError | None) -> Lease | Fault | None:
    if isinstance(reply, Fault) or not is_confirmed(reply):
        return reply if isinstance(reply, Fault) else None
    return Fault(missed) if missed else lease.extended(start, ttl)
