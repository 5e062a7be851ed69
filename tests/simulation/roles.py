"""Threads that hand their locks off, that stand for election, and whose locks are granted once in a period."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock

from django_redlock.core.election import leader
from django_redlock.core.election.leader import CandidateLock, Leader, TermHold
from django_redlock.core.keys import keys_for
from django_redlock.core.locks.hand_off import HandedOff, adopt_flow, hand_off_flow
from django_redlock.core.locks.hold import Hold
from django_redlock.core.locks.lock import Lock
from django_redlock.core.options import LockOptions
from django_redlock.core.primitives.base import MUTEX, PERIODIC, Primitive
from django_redlock.core.values import DRIFT, PRECISION, Claim, Lease

from .aftermath import MAX_TTL
from .background import Virtual
from .processes import Process
from .threads import Handle, SimulatedHold, Thread
from .world import Clock

# ── hand-offs ────────────────────────────────────────────────────────────────────────────────


class Text(NamedTuple):
    """A text on its way: it stands for a holder until the first adoption begins."""

    name: str
    holder: str
    mode: str
    clock: Clock
    lease: Lease


class HandingThread(Thread):
    """A thread that hands off some of its locks. One or two threads get the text, soon or too late."""

    keeps = 2 * MAX_TTL
    until = 0.0

    def live(self, names: list[str], until: float) -> None:
        self.until = until
        super().live(names, until)

    def _hold(self, handle: Handle, end: float, then: Callable[[], None]) -> None:
        chance, release = self._world.random, super()._hold
        if chance.random() < 0.4 or self._world.now > self.until:
            release(handle, end, then)
            return

        def handed_off(text: str | None, error: BaseException | None) -> None:
            self._world.say(self.holder, f"hands off {handle.name}: {error or 'done'}")
            if text is None and handle.holds:
                release(handle, self._world.now, then)
                return
            if text is None:
                self._ended(handle.claim)
                then()
                return
            lease = cast("Hold", handle.hold).lease
            self._watcher.on_its_way(text, Text(f"the text of {self.name}", text, self.mode, self.clock, lease))
            for adopter in self._watcher.adopters(self, chance.choice((1, 2))):
                adopter.process.after(_delay(chance, self._ttl), lambda each=adopter: each.adopt(text))
            then()

        ttl = chance.choice((None, MAX_TTL))
        self.process.after(max(0.0, end - self._world.now), lambda: self._do(hand_off_flow(handle, ttl), handed_off))

    def adopt(self, text: str) -> None:
        """Go on with the lock that another thread has handed off, and end."""
        handed = HandedOff.parse(text)
        (name,) = handed.names
        options = LockOptions(handed.ttl, fencing=handed.fencing_token is not None)
        handle = Handle(self.process, self.primitive, name, keys_for(b"sim", name.encode()), options)
        self._lock, handle.thread = handle, self
        self._watcher.arrived(text)

        def adopted(_: None, error: BaseException | None) -> None:
            if error is None:
                self._watcher.adopted(self, text)
                chance = self._world.random
                self._hold(handle, self._world.now + chance.choice((0.0, chance.uniform(0, self._ttl))), lambda: None)
            else:
                self._watcher.over(handle.claim)

        self._world.say(self.holder, f"adopts {name}")
        self._do(adopt_flow(handle, handed), adopted)


def _delay(chance: random.Random, ttl: float) -> float:
    """Returns the seconds until a text arrives, with some too late."""
    return chance.choice((0.001, chance.uniform(0, 0.3), chance.uniform(0, 1.5 * ttl)))


# ── elections ────────────────────────────────────────────────────────────────────────────────


class SimulatedTermHold(SimulatedHold, TermHold):
    """The hold of a candidate that leads."""


class CandidateHandle(Handle, CandidateLock):
    hold_type = SimulatedTermHold


class Candidate(Thread):
    """A thread that stands for election, works while it leads, and ends its work in ``on_lost``."""

    leader: Leader | None = None
    works = False
    elected_at = 0.0
    _work: Future[None]  # the call of ``on_elected``

    def live(self, names: list[str], until: float) -> None:
        chance = self._world.random
        if self._world.now >= max(until, self._world.troubled):
            return
        name = chance.choice(names)
        plain = Lock(self.process, MUTEX, name, keys_for(b"sim", name.encode()), LockOptions(self._ttl, fencing=True))
        stop_before = chance.choice((None, chance.uniform(0.1, 0.5) * self._ttl))
        self.leader = leader = Leader(plain, self.begin_work, self.end_work, stop_before)
        self._lock = handle = cast("CandidateHandle", leader._lock)
        handle.thread = self
        leader._begin()
        self._world.say(self.holder, f"stands for {name}")
        self.process.after(chance.uniform(0, 4 * self._ttl), leader._end)
        self._round(leader, handle, lambda: self.process.after(chance.uniform(0, 0.3), lambda: self.live(names, until)))

    def _round(self, leader: Leader, handle: CandidateHandle, then: Callable[[], None]) -> None:
        def ended(_: None, error: BaseException | None) -> None:
            assert error is None, f"a round must not fail: {error!r}"
            self._watcher.over(handle.claim)
            if leader._standing or handle.holds:
                self._round(leader, handle, then)
            else:
                then()

        self.performer.drive(leader._round_flow(), ended)

    def begin_work(self, call: Future[None]) -> None:
        """Begin ``call``, that of ``on_elected``."""
        assert self.leader is not None
        self._world.say(self.holder, f"is elected, {self.leader.remaining:.3f} s left")
        self.works, self.elected_at = True, self._world.now
        self._watcher.elected(self)
        self._work = call
        chance = self._world.random

        def fail() -> None:
            if not call.done():
                self._world.say(self.holder, "fails as the leader")
                call.set_exception(RuntimeError())

        if chance.random() < 0.2:
            self.process.after(chance.uniform(0, self._ttl), fail)

    def end_work(self, call: Future[None]) -> None:
        """Begin ``call``, that of ``on_lost``, which ends the work."""

        def end() -> None:
            self._world.say(self.holder, "leads no longer")
            self.works = False
            if not self._work.done():
                self._work.set_result(None)
            call.set_result(None)

        self.process.after(self.stop_seconds(), end)

    def stop_seconds(self) -> float:
        """Returns how long ``on_lost`` takes: no longer than it may."""
        assert self.leader is not None
        return self._world.random.uniform(0, 0.9) * self.leader.remaining


def _nothing(*_: object, **__: object) -> None:
    pass


def begin_call(_what: str, callback: Callable[[Any], None], _leader: Leader) -> Future[None]:
    """Begin a call of ``callback``, a method of a `Candidate`, which ends the call."""
    call: Future[None] = Future()
    call.set_running_or_notify_cancel()
    callback(call)
    return call


def virtual_elections(chance: random.Random) -> ExitStack:
    """Returns a context in which elections run in virtual time, with the random numbers of the run."""
    ends = ExitStack()
    for name, double in (
        ("WakeEvent", Virtual),
        ("CandidateLock", CandidateHandle),
        ("begin_call", begin_call),
        ("random", chance),
        ("logger", SimpleNamespace(info=_nothing, warning=_nothing, error=_nothing, log=_nothing)),
    ):
        ends.enter_context(mock.patch.object(leader, name, double))
    return ends


# ── periods ──────────────────────────────────────────────────────────────────────────────────


class PeriodicThread(Thread):
    """A thread whose locks are granted once in a period, which all threads know."""

    keeps = MAX_TTL

    def __init__(self, process: Process, name: str, watcher: Any, ttl: float, primitive: Primitive) -> None:
        self.period = min(MAX_TTL, ttl * (0.5, 1.0, 1.5, 2.0)[process.world.seed % 4])
        chosen = PERIODIC._replace(period=self.period) if primitive is MUTEX else primitive
        super().__init__(process, name, watcher, ttl, chosen)

    def _options(self) -> LockOptions:
        return super()._options()._replace(min_hold=self.period)

    def believe(self, handle: Handle) -> None:
        lease = self.lease
        if lease is not None:
            # The request for this lease, or for its last extension, was not sent earlier than this.
            sent = self.clock.true(lease.valid_until + lease.ttl * DRIFT + PRECISION - lease.ttl)
            self._watcher.started(self, lease, sent, self.period)
        super().believe(handle)

    def _ended(self, claim: Claim) -> None:
        """Expect nothing: the key stays for the period."""
