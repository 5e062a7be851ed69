"""Locks in memory that a test can make fail: refused, lost, or with a store that is down."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from ..backends.dummy import DummyBackend
from ..backends.locmem import LocMemBackend
from ..backends.storage import StorageAlgorithm, StorageBackend
from ..core.events import Event, Hook
from ..core.flow.requests import CallFunction, Fault, Flow
from ..core.keys import glob_matcher
from ..core.locks.lease_state import LeaseState
from ..core.owner import describe_owner
from ..core.primitives.base import Primitive
from ..core.values import Claim, Lease, Refusal, Seconds
from ..errors import LockUnavailable
from .clock import Clock

Outcome = Literal["refused", "lost", "broken"]

_numbers = itertools.count(1)
_REASON = "the store can't be asked (the test has said so)"


class Rehearsal:
    """Plans what happens to the locks of one test. ``clock`` is their clock. A name may be a glob."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.place = f"rehearsal {next(_numbers)}"  # the LOCATION, which no other test has
        self._planned: list[tuple[str, Outcome]] = []
        self._to_lose: set[bytes] = set()
        self._broken = False

    def refuse_next(self, name: str = "*") -> None:
        """The next acquire is refused, at once, as if it had waited for its whole timeout."""
        self._planned.append((name, "refused"))

    def lose_next(self, name: str = "*") -> None:
        """The next acquire is granted, and the lease is lost before ``acquire`` returns."""
        self._planned.append((name, "lost"))

    def break_next(self, name: str = "*") -> None:
        """The next acquire raises ``LockUnavailable``."""
        self._planned.append((name, "broken"))

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Within this context every request to the store raises ``LockUnavailable``."""
        before, self._broken = self._broken, True
        try:
            yield
        finally:
            self._broken = before

    def advance(self, time: Seconds) -> None:
        """Let time pass at once: `Clock.advance`."""
        self.clock.advance(time)

    @property
    def planned(self) -> list[tuple[str, Outcome]]:
        """The plans that have not happened. It is not empty when the code acquired fewer locks than planned."""
        return list(self._planned)

    def backend(self, **options: Any) -> LocMemBackend:
        """A backend with these plans, for code that takes a backend as an argument."""
        return FakeLocMem(self.place, rehearsal=self, **options)

    def _next(self, name: str) -> Outcome | None:
        for plan in self._planned:
            if glob_matcher(plan[0])(name):
                self._planned.remove(plan)
                return plan[1]
        return None


class FakeAlgorithm(StorageAlgorithm):
    """The algorithm of a `StorageBackend`, with the plan for the next acquire applied."""

    def __init__(self, backend: StorageBackend, rehearsal: Rehearsal) -> None:
        super().__init__(backend)
        self._rehearsal = rehearsal

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        planned = self._rehearsal._next(claim.name)
        if planned == "refused":
            return Refusal(claim.ttl, describe_owner("the test").decode())
        if planned == "broken":
            raise LockUnavailable(claim.name, _REASON)
        outcome = yield from super().acquire(primitive, claim, deadline)
        if planned == "lost" and isinstance(outcome, Lease):
            self._rehearsal._to_lose.add(outcome.claim.token)
        return outcome


class FakeStorage(StorageBackend):
    """A mixin that applies the plans of a `Rehearsal` to a backend."""

    def __init__(self, location: Any = "", *, rehearsal: Rehearsal, **options: Any) -> None:
        self._rehearsal = rehearsal
        self._hook: Hook | None = None
        super().__init__(location, **{"clock": rehearsal.clock, **options})
        self.algorithm = FakeAlgorithm(self, rehearsal)

    @property
    def hook(self) -> Hook:
        """Calls the hook that was set, then loses the lease if that was planned."""
        return self._on_event

    @hook.setter
    def hook(self, hook: Hook | None) -> None:
        self._hook = hook

    def _on_event(self, event: Event) -> None:
        if self._hook is not None:
            self._hook(event)
        lock = event.lock if event.kind == "acquired" else None
        lease = lock.current_lease() if isinstance(lock, LeaseState) else None
        if isinstance(lock, LeaseState) and lease is not None and lease.claim.token in self._rehearsal._to_lose:
            self._rehearsal._to_lose.remove(lease.claim.token)
            self.release(lease.claim)
            lock.mark_lost(lease, "the test has said so")

    def perform(self, request: Any) -> Any:
        return self._refused(request) or super().perform(request)

    async def aperform(self, request: Any) -> Any:
        return self._refused(request) or await super().aperform(request)

    def _refused(self, request: Any) -> Fault | None:
        if not (self._rehearsal._broken and type(request) is CallFunction):
            return None
        return Fault(LockUnavailable(next(map(_name, filter(_name, request.args)), ""), _REASON))


class FakeLocMem(FakeStorage, LocMemBackend):
    """Locks in memory."""


class FakeDummy(FakeStorage, DummyBackend):
    """No locks at all."""


def _name(argument: Any) -> str:
    """The lock's name in an argument of a backend's method: the name itself, a claim or a lease."""
    name = getattr(getattr(argument, "claim", argument), "name", argument)
    return name if isinstance(name, str) else ""
