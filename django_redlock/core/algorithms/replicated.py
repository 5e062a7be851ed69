"""ReplicaLock: a grant of the primary counts once enough replicas have acknowledged it (ncghost1/Redis-ReplicaLock).

The script and WAIT are sent in one pipeline, so WAIT costs no extra round trip. The lease begins before the request is
sent, so the time that WAIT takes is part of the lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import LockError, LockUnavailable
from ..flow.replies import fault_error, read_outcome
from ..flow.requests import EvalAndWait, EvalScript, Fault, Flow
from ..keys import Keys
from ..lock_info import LockInfo
from ..primitives.base import Primitive
from ..values import Claim, Lease, OnRefusal, Refusal, Wait
from .lease_requests import is_confirmed, quarantine_restore_request
from .quarantine import Quarantine, replica_quarantine, required_replicas, unwrap_reply
from .retries import await_turn, release_lost, retry_until_served, run_idempotent
from .single_node import SingleNode

_ADJUSTMENTS = 3  # requests in one attempt, while the primary reports another number of replicas


class Replicated:
    """The algorithm for a primary with replicas. All methods return flows (generators of requests).

    ``replicas``: the replicas that must acknowledge: ``"majority"``, ``"all"`` or a number. ``wait``: the longest wait
    in seconds for the acknowledgements. ``lag``: seconds without an acknowledgement after which a replica counts as
    gone.
    """

    acquire_free = hand_over = None

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
        self.clock = clock
        self._single_node = SingleNode(clock)
        self._wait = wait
        self._quarantine: Callable[[int], Quarantine] | None = None
        if quarantine:
            self._quarantine = lambda waits: replica_quarantine(key_prefix, max_ttl, lag, waits, str(replicas))
        self._expect(replicas if isinstance(replicas, int) else 1)

    def _expect(self, replicas: int) -> None:
        # The number and the quarantine, whose arguments contain the number, are replaced together, for other threads.
        self._expected = replicas, self._quarantine(replicas) if self._quarantine else None

    @property
    def quarantine(self) -> Quarantine | None:
        """The quarantine with the current number of replicas that must acknowledge; ``None`` for no quarantine."""
        return self._expected[1]

    def acquire(
        self, primitive: Primitive, claim: Claim, deadline: float, on_refusal: OnRefusal | None = None
    ) -> Flow[Lease | Refusal]:
        """Acquire on the primary, retrying after each wake-up until ``deadline`` (monotonic seconds).

        Returns a lease or a refusal. Raises ``LockUnavailable`` if the primary does not reply, or grants no locks at
        the moment. If too few replicas acknowledge, releases the grant and raises ``LockUnavailable``.
        """
        wait, waited = Wait.QUEUE if deadline > self.clock() else Wait.NO, False
        lost: list[Claim] = []  # attempts that may have been granted although no reply has arrived

        def attempt() -> Flow[Lease | Refusal | Fault]:
            try:
                outcome = yield from self._attempt(primitive, claim, wait)
            except LockUnavailable as error:
                error.unconfirmed = error.unconfirmed or bool(lost)
                raise
            if isinstance(outcome, Fault) and outcome.unconfirmed:
                lost.append(claim)
            return outcome

        def again() -> Flow[Lease | Refusal | Fault]:
            nonlocal claim
            claim = claim.next_attempt(self.clock())  # a new token: a timed-out attempt may still be released
            return (yield from attempt())

        outcome = yield from attempt()
        while True:
            if waited:
                outcome = yield from retry_until_served(self.clock, deadline, outcome, again)
            if isinstance(outcome, Fault):
                raise fault_error(claim.name, outcome._replace(unconfirmed=bool(lost)))
            yield from release_lost(primitive, lost)  # one of them may be in the way
            left = deadline - self.clock()
            if isinstance(outcome, Lease) or outcome.final:
                return outcome
            if left <= 0:
                if wait.listed:
                    yield from run_idempotent(primitive.dequeue_request(claim))
                return outcome
            if on_refusal is not None:
                on_refusal(outcome)
            wait, waited = (yield from await_turn(primitive, claim, outcome, wait, left)), True
            outcome = yield from again()

    def _attempt(self, primitive: Primitive, claim: Claim, wait: Wait) -> Flow[Lease | Refusal | Fault]:
        start = self.clock()
        reply, missed = yield from self._run_guarded(primitive.acquire_request(claim, wait), claim.name)
        if isinstance(reply, Fault):
            return reply
        outcome = read_outcome(claim, reply, start)
        if isinstance(outcome, Lease) and missed:
            try:
                yield from self._single_node.release(primitive, claim)
            except LockUnavailable as error:
                error.unconfirmed = True
                raise
            raise missed
        return outcome

    def run_granting(self, run: EvalScript, name: str) -> Flow[Any]:
        """Run a script that grants or refuses the lock ``name``. Returns the reply or a `Fault`.

        If too few replicas acknowledge a grant, the compensation of ``run`` is run, which takes the grant back.
        """
        reply, missed = yield from self._run_guarded(run, name)
        if missed and type(reply) is int:
            undone = (yield from run_idempotent(run.compensation())) if run.compensation else None
            return Fault(missed, unconfirmed=isinstance(undone, Fault))
        return reply

    def _run_guarded(self, run: EvalScript, name: str) -> Flow[tuple[Any, LockError | None]]:
        """Run a script with the quarantine script before it, and wait for acknowledgements.

        Returns both: the reply or a `Fault`, and the error to raise for a grant that too few replicas have acknowledged
        (``None`` if enough have).
        """
        for _ in range(_ADJUSTMENTS):
            expected, guard = self._expected
            answer = yield from self._confirmed(name, expected, guard.wrap(run) if guard else run)
            if isinstance(answer, Fault):
                return answer, None
            (answered,), missed = answer
            if not (isinstance(answered, list) and answered[:1] == [5] and type(answered[1]) is int):
                return unwrap_reply(answered), missed
            self._expect(answered[1])
        raise LockUnavailable(name, "the number of replicas keeps changing")

    def _confirmed(
        self, name: str, expected: int, *runs: EvalScript
    ) -> Flow[tuple[list[Any], LockError | None] | Fault]:
        """Run scripts, and wait for the acknowledgements of ``expected`` replicas, up to the time limit ``wait``.

        Returns both: the replies, and the error to raise if too few replicas have acknowledged (``None`` if enough
        have). Returns a `Fault` if the primary did not reply.
        """
        answer = yield from run_idempotent(EvalAndWait(runs, expected, self._wait))
        if isinstance(answer, Fault):
            return answer
        replies, count = answer
        if isinstance(count, Fault):
            return replies, fault_error(name, count)
        if count >= expected:
            return replies, None
        return replies, LockUnavailable(name, f"{count} of {expected} replicas confirmed within {self._wait:g} s")

    def _run_confirmed(self, name: str, *runs: EvalScript) -> Flow[tuple[list[Any], LockError | None]]:
        """Run scripts as `_confirmed` does, and repeat them if the primary requires another number of replicas.

        The reply names the required number if the last script is a `Quarantine.noop_request`. After any other script,
        the last known number counts. Raises ``LockUnavailable``.
        """
        for _ in range(_ADJUSTMENTS):
            expected = self._expected[0]
            answer = yield from self._confirmed(name, expected, *runs)
            if isinstance(answer, Fault):
                raise fault_error(name, answer)
            needed = required_replicas(answer[0][-1])
            if needed in (None, expected):
                return answer
            self._expect(needed)
        raise LockUnavailable(name, "the number of replicas keeps changing")

    def extend(self, primitive: Primitive, lease: Lease, ttl: float) -> Flow[Lease | None]:
        """Extend ``lease`` to ``ttl`` seconds from now. Returns the extended lease; ``None`` if the lease is lost.

        Raises ``LockUnavailable``.
        """
        (outcome,) = yield from self.extend_many(primitive, [(lease, ttl)])
        if isinstance(outcome, Fault):
            raise outcome.error
        return outcome

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """Extend many leases with one WAIT. ``leases``: pairs of a lease and its new ttl in seconds.

        Returns for each lease: the extended lease, ``None`` if the lease is lost, or a `Fault` if the primary did not
        reply or too few replicas acknowledged.
        """
        start = self.clock()
        due = {lease.claim.token: (lease, ttl) for lease, ttl in leases if start < lease.valid_until}
        outcomes: dict[bytes, Lease | Fault | None] = {}
        try:
            if due:
                runs = [primitive.extend_request(lease.claim, ttl) for lease, ttl in due.values()]
                if guard := self.quarantine:  # a restarted or promoted primary may have lost locks
                    runs.append(guard.noop_request())
                name = leases[0][0].claim.name if len(leases) == 1 else ""
                replies, missed = yield from self._run_confirmed(name, *runs)
                for (lease, ttl), reply in zip(due.values(), replies[: len(due)], strict=True):
                    outcome = _outcome(lease, ttl, reply, start, missed)
                    if reply == 0 and guard:
                        outcome = yield from self._restore(primitive, lease, ttl, start, guard)
                    outcomes[lease.claim.token] = outcome
        except LockError as error:
            if not isinstance(error, LockUnavailable) and len(leases) > 1:  # one key has another type: find its lease
                half = len(leases) // 2
                first = yield from self.extend_many(primitive, leases[:half])
                return first + (yield from self.extend_many(primitive, leases[half:]))
            outcomes = {token: outcomes.get(token, Fault(error)) for token in due}
        return [outcomes.get(lease.claim.token) for lease, _ in leases]

    def _restore(
        self, primitive: Primitive, lease: Lease, ttl: float, start: float, guard: Quarantine
    ) -> Flow[Lease | Fault | None]:
        """Restore the lock of ``lease``, which the primary does not have, if its quarantine keeps out other holders.

        Returns an outcome as `extend_many` does. ``start``: when the extension was sent, in monotonic seconds.
        """
        yield from self._run_confirmed(lease.claim.name, guard.noop_request())
        again = quarantine_restore_request(primitive, lease.claim, ttl, guard)
        (restored,), missed = yield from self._run_confirmed(lease.claim.name, again)
        late = self.clock() >= lease.valid_until
        return None if late else _outcome(lease, ttl, restored, start, missed)

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Release the lock for all attempts of ``claim``. Returns whether the claim held the lock.

        ``keep``: seconds for which the lock stays taken. Raises ``LockUnavailable``.
        """
        return self._single_node.release(primitive, claim.all_attempts(), keep)

    def cancel(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        """Remove ``claim`` from the waiters, and release the lock if any attempt of ``claim`` was granted.

        Returns whether the claim held the lock. Raises ``LockUnavailable``.
        """
        return self._single_node.cancel(primitive, claim)

    def cancel_many(self, claims: Sequence[tuple[Primitive, Claim]]) -> Flow[list[bool]]:
        """Cancel many claims like `cancel`, in one pipeline.

        Returns for each claim whether the primary has served it.
        """
        return self._single_node.cancel_many(claims)

    def describe(self, name: str, keys: Keys, with_waiters: bool = False) -> Flow[LockInfo | None]:
        """Return the lock as the primary shows it, with its waiters if ``with_waiters``; ``None`` if it is not held.

        Raises ``LockUnavailable``.
        """
        return self._single_node.describe(name, keys, with_waiters)


def _outcome(lease: Lease, ttl: float, reply: Any, start: float, missed: LockError | None) -> Lease | Fault | None:
    if not is_confirmed(reply):
        return None
    return Fault(missed) if missed else lease.extended(start, ttl)
