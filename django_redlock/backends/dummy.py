"""No locks at all: everything is granted. For tests of other things."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..core.held import Held
from ..core.lease import Claim, Lease, Refusal
from ..core.primitives import KINDS, MUTEX
from .plain import PlainBackend


class DummyBackend(PlainBackend):
    """Grants everything to everybody, at once. Options are checked as any backend's. Options: `Backend`."""

    kinds = KINDS
    fair = MUTEX
    blocks = False

    def attempt(self, claim: Claim) -> Lease | Refusal:
        return Lease.granted(claim, self.clock(), time.time_ns() // 1000)

    def prolong(self, lease: Lease, ttl: float) -> Lease | None:
        return lease.prolonged(self.clock(), ttl)

    def free(self, claim: Claim, keep: float = 0.0) -> bool:
        return True

    def look(self, name: str) -> Held | None:
        return None

    def names(self) -> Iterable[str]:
        return ()

    def evict(self, name: str, digest: str) -> bool:
        return False
