"""A backend that grants every lock at once, for tests of code that needs no real locks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from copy import copy
from typing import Any

from ..core.algorithms.single_node import SingleNode
from ..core.contract import Store
from ..core.flow.requests import EvalScript
from ..core.lock_info import LockInfo
from ..core.primitives.base import KINDS, MUTEX, PERIODIC, Primitive
from ..core.primitives.multi import ADOPT
from ..core.values import Claim, Lease, Refusal
from .storage import StorageBackend


class DummyBackend(StorageBackend):
    """A backend that grants every lock at once, even if the lock is held. Options as for `Backend`."""

    kinds = KINDS
    fair = MUTEX
    adopting: Primitive | None = ADOPT
    periodic = PERIODIC
    does_io = False
    for_tenants = True

    def task_store(self) -> Store:
        """Return a copy of this backend that keeps no task records, so every call can be queued, started and ended."""
        twin = copy(self)
        twin.algorithm = SingleNode(self.clock)
        return twin

    def run_script(self, request: EvalScript) -> Any:
        granted = request.script.name in ("task_submit", "task_start")
        return round(self.clock() * 1_000_000) if granted else 1

    def acquire_once(self, claim: Claim) -> Lease | Refusal:
        return Lease.granted(claim, self.clock(), time.time_ns() // 1000)

    def extend(self, lease: Lease, ttl: float) -> Lease | None:
        return lease.extended(self.clock(), ttl)

    def release(self, claim: Claim, keep: float = 0.0) -> bool:
        return True

    def describe_once(self, name: str) -> LockInfo | None:
        return None

    def names(self) -> Iterable[str]:
        return ()

    def force_release_once(self, name: str, digest: str) -> bool:
        return False
