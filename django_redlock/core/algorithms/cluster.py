"""The algorithm for a Redis Cluster: as on one node, but the locks of a multilock may be in different slots.

A script can't acquire locks in several slots. So every client acquires the locks slot by slot in the same order. A
client that is refused in one slot releases its locks in the other slots before it waits, so there is no deadlock. Of
several concurrent clients one succeeds: the client furthest in the order can be refused only by a client that holds
all its own locks.
"""

from __future__ import annotations

from typing import Any

from ...errors import LockError
from ..flow.replies import read_outcome
from ..flow.requests import Batch, EvalScript, Fault, Flow
from ..keys import Keys, hash_tag
from ..primitives.base import Primitive
from ..values import Claim, Lease, Wait
from .single_node import SingleNode


class Cluster(SingleNode):
    """The algorithm for a Redis Cluster."""

    def _try(self, primitive: Primitive, claim: Claim, wait: Wait) -> Flow[Any]:
        """Acquire slot by slot. If a slot refuses or fails, release the locks of the other slots.

        Returns as `SingleNode._try`. If a server does not reply, a part of the claim may stay granted: the `Fault` is
        ``unconfirmed``.
        """
        parts = self._by_slot(claim)
        if len(parts) == 1:
            return (yield from super()._try(primitive, claim, wait))
        leases: list[Lease] = []
        for part in parts:
            reply = yield from super()._try(primitive, part, wait)
            outcome = reply if isinstance(reply, Fault) else read_outcome(part, reply, 0.0)
            if isinstance(outcome, Lease):
                leases.append(outcome)
                continue
            undone = yield from self._run_all([primitive.release_request(each) for each in parts[: len(leases)]])
            if isinstance(outcome, Fault) or undone:
                failed = outcome if isinstance(outcome, Fault) else undone[0]
                return failed._replace(unconfirmed=failed.unconfirmed or bool(undone))
            blocking = part.all_keys[max(0, outcome.blocking_index - 1)]
            return [*reply[:4], claim.all_keys.index(blocking) + 1]
        if not claim.fencing:
            return True
        token = max(lease.fencing_token or 0 for lease in leases)
        # Each slot has made its own token: store the largest in all of them.
        if faults := (yield from self._run_all([primitive.fencing_request(part, token) for part in parts])):
            yield from self._run_all([primitive.release_request(part) for part in parts])
            return faults[0]._replace(unconfirmed=True)
        return [1, token, 0]

    def _run_all(self, calls: list[EvalScript]) -> Flow[list[Fault]]:
        """Run scripts of several slots in one batch. Returns the faults among the replies."""
        replies = (yield Batch(calls)) if calls else ()
        return [reply for reply in replies if isinstance(reply, Fault)]

    def _waits_apart(self, primitive: Primitive, claim: Claim) -> bool:
        return super()._waits_apart(primitive, claim) or len(self._by_slot(claim)) > 1

    def _by_slot(self, claim: Claim) -> list[Claim]:
        """Return ``claim`` split into one claim for each hash tag, in the order in which all clients acquire them."""
        if not claim.require_all:
            return [claim]
        tags: dict[bytes, list[Keys]] = {}
        for keys in claim.all_keys:
            tags.setdefault(hash_tag(keys.lock), []).append(keys)
        return [claim._replace(all_keys=tuple(keys)) for _, keys in sorted(tags.items())]

    def _by_lock(self, claim: Claim) -> list[Claim]:
        """Return one claim for each lock of a multilock: a Cluster that moves a slot refuses scripts with many keys."""
        return [claim._replace(all_keys=(keys,)) for keys in claim.all_keys] if claim.require_all else [claim]

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        parts = self._by_lock(claim)
        if len(parts) == 1:
            return (yield from super().release(primitive, claim, keep))
        held, errors = True, []
        for part in parts:
            try:
                held = (yield from super().release(primitive, part.all_attempts(), keep)) and held
            except LockError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return held
