"""A mutex that is granted at most once in a period, even if its holder dies or releases it early."""

from __future__ import annotations

from typing import NamedTuple

from ..flow.requests import EvalScript
from ..values import Claim, Wait, millis
from .base import Primitive, script_family


class Period(NamedTuple):
    """The ``payload`` of a claim for a periodic mutex: the lock's name, and the length of the period in seconds."""

    name: str
    seconds: float


class PeriodicPrimitive(Primitive):
    """A mutex whose key stays in the store for at least one period, so that there is no other grant in that time.

    The holder's lease has the length of its ttl, and is renewed like any other.
    """

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        run = super().acquire_request(claim, wait, node)
        token, owner, _, *more = run.args
        return run._replace(args=(token, owner, millis(max(claim.ttl, claim.payload.seconds)), *more))

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        """Return the request that extends the lease, and never shortens the time for which the key stays."""
        run = super().extend_request(claim, ttl, node)
        return EvalScript(run.script, run.keys, (*run.args, b"1", b"1"), node)


PERIODIC = PeriodicPrimitive("mutex", *script_family("mutex"), one_holder=True)
