"""Fake locks for tests. The locks fail on demand: an acquire is refused, a lease is lost, or the store is down."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from ..backends.dummy import DummyBackend
from ..backends.locmem import LocMemBackend
from ..backends.storage import StorageAlgorithm, StorageBackend
from ..core.algorithms.single_node import SingleNode
from ..core.events import Event, Hook
from ..core.flow.replies import NEVER
from ..core.flow.requests import CallFunction, EvalScript, Fault, Flow, FlowRequest
from ..core.keys import glob_matcher
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.owner import describe_owner
from ..core.primitives.base import Primitive
from ..core.values import Claim, Lease, OnRefusal, Refusal, Seconds
from ..errors import LockUnavailable
from .clock import Clock

Outcome = Literal["refused", "lost", "broken"]

_numbers = itertools.count(1)
_REASON = "the store is unavailable (planned by the test)"


class Rehearsal:
    """The failures that one test plans for its locks: refused, lost, or a store that is down.

    The argument ``name`` of the methods is the name of the lock, or a glob. ``clock``: the `Clock` of the locks.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.place = f"rehearsal {next(_numbers)}"  # the LOCATION, unique for each test
        self._planned: list[tuple[str, Outcome]] = []
        self._to_lose: set[bytes] = set()
        self._broken = False

    def refuse_next(self, name: str = "*") -> None:
        """Refuse the next acquire of the lock. The acquire returns at once, as if its whole timeout had passed.

        A call of a task that needs the lock is refused when it is sent, or in ``while_executing`` when its body starts.
        """
        self._planned.append((name, "refused"))

    def lose_next(self, name: str = "*") -> None:
        """Grant the next acquire of the lock, and lose the lease before ``acquire()`` returns."""
        self._planned.append((name, "lost"))

    def break_next(self, name: str = "*") -> None:
        """Make the next acquire of the lock raise ``LockUnavailable``."""
        self._planned.append((name, "broken"))

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Context manager in which every request to the store raises ``LockUnavailable``."""
        before, self._broken = self._broken, True
        try:
            yield
        finally:
            self._broken = before

    def advance(self, time: Seconds) -> None:
        """Move the clock of the locks forward by ``time`` seconds, see `Clock.advance`."""
        self.clock.advance(time)

    @property
    def planned(self) -> list[tuple[str, Outcome]]:
        """The planned failures that have not happened yet, as pairs of the lock's name and the outcome.

        At the end of a test the list is empty, unless the tested code made fewer acquires than the test planned.
        """
        return list(self._planned)

    def backend(self, **options: Any) -> LocMemBackend:
        """Return a backend in memory with the planned failures, for code that takes a backend as an argument.

        ``options``: the options of ``LocMemBackend``.
        """
        return FakeLocMem(self.place, rehearsal=self, **options)

    def _next(self, name: str, *outcomes: Outcome) -> Outcome | None:
        """Return the first of ``outcomes`` that is planned for ``name``. For "broken", raise ``LockUnavailable``."""
        for plan in self._planned:
            if plan[1] in outcomes and glob_matcher(plan[0])(name):
                self._planned.remove(plan)
                if plan[1] == "broken":
                    raise LockUnavailable(name, _REASON)
                return plan[1]
        return None

    def _acquire(self, claim: Claim, flow: Flow[Lease | Refusal]) -> Flow[Lease | Refusal]:
        """Refuse ``claim`` or raise ``LockUnavailable`` if this is planned; otherwise run ``flow``, which acquires.

        A lease whose loss is planned is granted here, and ended by `FakeStorage.hook`.
        """
        planned = self._next(claim.name, "refused", "broken", "lost")
        if planned == "refused":
            return Refusal(claim.ttl, describe_owner("the test").decode())
        outcome = yield from flow
        if planned == "lost" and isinstance(outcome, Lease):
            self._to_lose.add(outcome.claim.token)
        return outcome


class PlannedOutcomes:
    """A mixin for an algorithm: an acquire has the outcome that ``rehearsal`` has planned."""

    rehearsal: Rehearsal

    def acquire(
        self, primitive: Primitive, claim: Claim, deadline: float, on_refusal: OnRefusal | None = None
    ) -> Flow[Lease | Refusal]:
        flow: Flow[Lease | Refusal] = super().acquire(primitive, claim, deadline, on_refusal)  # type: ignore[misc]
        return self.rehearsal._acquire(claim, flow)


class FakeAlgorithm(PlannedOutcomes, StorageAlgorithm):
    """The algorithm of `FakeStorage`."""


class FakeTaskAlgorithm(PlannedOutcomes, SingleNode):
    """The algorithm for the records of tasks."""

    def run_granting(self, run: EvalScript, name: str) -> Flow[Any]:
        if self.rehearsal._next(name, "refused", "broken"):
            return [0, NEVER, 0, describe_owner("the test")]  # final, because on_conflict="wait" would ask again
        return (yield from super().run_granting(run, name))


class FakeStorage(StorageBackend):
    """A mixin for a backend. Its locks fail as a `Rehearsal` has planned, and use the clock of the `Rehearsal`."""

    def __init__(self, location: Any = "", *, rehearsal: Rehearsal, **options: Any) -> None:
        self._rehearsal = rehearsal
        self._hook: Hook | None = None
        super().__init__(location, **{"clock": rehearsal.clock, **options})
        self.algorithm = FakeAlgorithm(self)
        self.algorithm.rehearsal = rehearsal

    def task_store(self) -> Any:
        store: Any = super().task_store()
        store.algorithm = FakeTaskAlgorithm(store.clock)
        store.algorithm.rehearsal = self._rehearsal
        return store

    @property
    def hook(self) -> Hook:
        """A function that calls the assigned hook. After an acquire, it also ends the lease if a loss was planned."""
        return self._on_event

    @hook.setter
    def hook(self, hook: Hook | None) -> None:
        self._hook = hook

    def _on_event(self, event: Event) -> None:
        if self._hook is not None:
            self._hook(event)
        lock = event.lock if event.kind == "acquired" else None
        hold = lock.hold if isinstance(lock, Lock) else lock
        if isinstance(hold, Hold) and hold.lease.claim.token in self._rehearsal._to_lose:
            self._rehearsal._to_lose.remove(hold.lease.claim.token)
            self.release(hold.lease.claim)
            hold.mark_lost("planned by the test")

    def perform(self, request: FlowRequest) -> Any:
        return self._refused(request) or super().perform(request)

    async def aperform(self, request: FlowRequest) -> Any:
        return self._refused(request) or await super().aperform(request)

    def _refused(self, request: Any) -> Fault | None:
        if not (self._rehearsal._broken and type(request) is CallFunction):
            return None
        return Fault(LockUnavailable(next(map(_name, filter(_name, request.args)), ""), _REASON))


class FakeLocMem(FakeStorage, LocMemBackend):
    """A backend that keeps its locks in memory. They fail as a `Rehearsal` has planned."""


class FakeDummy(FakeStorage, DummyBackend):
    """A backend that grants every acquire, unless a `Rehearsal` has planned a failure."""


def _name(argument: Any) -> str:
    """Return the lock's name in ``argument``: a name, a claim or a lease. Returns ``""`` for any other value."""
    name = getattr(getattr(argument, "claim", argument), "name", argument)
    return name if isinstance(name, str) else ""
