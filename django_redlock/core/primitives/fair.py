"""The kinds of locks with a fair queue. The queue is described in ``lua/fair_queue.lua``."""

from __future__ import annotations

from collections.abc import Sequence

from ..flow.scripts import script
from ..values import Claim, Refusal
from .base import MUTEX, RLOCK, Primitive


class FairMutex(Primitive):
    """A mutex that is granted strictly in order of arrival."""

    def more_args(self, claim: Claim) -> tuple[bytes, ...]:
        return (b"%d" % self.queue_order,)

    def wake_keys(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        """Return the key of the wake-up list of ``claim``. Each waiter in a fair queue has its own list."""
        return (claim.keys.wake_key_of(claim.acquisition_id),)


class ReadWriteMutex(FairMutex):
    """One side of a read-write lock, which several readers or one writer may hold. ``access`` is ``r`` or ``w``."""

    def more_args(self, claim: Claim) -> tuple[bytes, ...]:
        return (*super().more_args(claim), self.access.encode(), claim.holder)


FAIR = FairMutex(
    "mutex", script("fair_acquire"), MUTEX.extend_script, script("fair_release"), access="w", one_holder=True
)
_RW_SCRIPTS = script("rw_acquire"), RLOCK.extend_script, RLOCK.release_script
READ = ReadWriteMutex("rwlock", *_RW_SCRIPTS, access="r", facts=(("mode", "read"),))
WRITE = READ._replace(access="w", facts=(("mode", "write"),))
