"""The kinds of locks with a fair queue. The queue is described in ``lua/fair_queue.lua``."""

from __future__ import annotations

from collections.abc import Sequence

from ..flow.requests import EvalScript
from ..flow.scripts import script
from ..owner import Facts
from ..values import Claim, Refusal, Wait, millis
from .base import MUTEX, RLOCK, Primitive, sized_request

ARRIVAL_ORDER, READERS_BEHIND_WRITERS, RESTORED = 2, 1, 0  # the values of "order" in the scripts


class FairMutex(Primitive):
    """A mutex that is granted strictly in order of arrival."""

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        """Return the request of `Primitive.acquire_request`, with the order of the queue as a further argument."""
        run = super().acquire_request(claim, wait, node)
        return _with_args(run, b"%d" % self.queue_order)

    def wake_keys(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        """Return the key of the wake-up list of ``claim``. Each waiter in a fair queue has its own list."""
        return (claim.keys.wake_key_of(claim.acquisition_id),)


class ReadWriteMutex(FairMutex):
    """One side of a read-write lock, which several readers or one writer may hold. ``access`` is ``r`` or ``w``."""

    @property
    def facts(self) -> Facts:
        """The field ``mode`` for the owner, ``read`` or ``write``, which tells apart waiting readers and writers."""
        return (("mode", "read" if self.access == "r" else "write"),)

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        """Return the request of `FairMutex.acquire_request`, with access and holder as further arguments."""
        run = super().acquire_request(claim, wait, node)
        return _with_args(run, self.access.encode(), claim.payload)

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        run = super().extend_request(claim, ttl, node)
        return sized_request(self.extend_script, run.keys, (claim.token, millis(ttl)), node)


def _with_args(run: EvalScript, *more: bytes) -> EvalScript:
    made = sized_request(run.script, run.keys, (*run.args, *more), run.node)
    return made._replace(compensation=run.compensation)


FAIR = FairMutex("mutex", script("fair_acquire"), MUTEX.extend_script, script("fair_release"), access="w")
READ = ReadWriteMutex("rwlock", script("rw_acquire"), RLOCK.extend_script, RLOCK.release_script, access="r")
WRITE = READ._replace(access="w")
