"""Threads that use `Lock` itself, with its flows, the local queue and the renewal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_redlock.core.background.work import Extension
from django_redlock.core.keys import Keys, keys_for, lock_name_of
from django_redlock.core.locks import hold, lock, multilock, semaphore
from django_redlock.core.options import LockOptions
from django_redlock.core.primitives.base import Primitive
from django_redlock.core.values import Claim, Lease

from .aftermath import MAX_TTL
from .processes import Process

DETERRED = 1.0  # the longest rest in seconds of a client that no server serves: its next try would fail, too
SEVERAL = "striped", "multilock"  # kinds with several names in one claim
AND = " + "
INTERRUPTED = 0.03  # share of the threads' operations that are interrupted


def held(claim: Claim) -> list[str | None]:
    """Returns the names from which a granted claim excludes other claims."""
    return [lock_name_of(b"sim", place.lock) for place in (claim.all_keys if claim.require_all else claim.all_keys[:1])]


class SimulatedHold(hold.Hold):
    """A hold that reports each change of its belief to the watcher."""

    def on_extended(self, extension: Extension, outcome: Any) -> None:
        super().on_extended(extension, outcome)
        lock: Any = self._handle()
        lock.thread.believe(lock)


class Handle(lock.Lock):
    """A lock that reports each change of its belief to the watcher."""

    hold_type = SimulatedHold
    thread: Thread
    claim: Claim
    _stripes: tuple[Keys, ...]

    def new_claim(self) -> Claim:
        self.claim = super().new_claim()
        if self.primitive.kind in ("rlock", "rwlock"):
            self.claim = self.claim._replace(holder=self.thread.holder.encode())
        self.thread.asks(self.claim)
        return self.claim

    def on_granted(self, lease: Lease) -> hold.Hold:
        granted = super().on_granted(lease)
        self.thread.believe(self)
        return granted


class SimulatedStripe(SimulatedHold, semaphore.StripeHold):
    """A hold of one stripe."""


class AnyOf(Handle, semaphore.Striped):
    """A striped lock."""

    hold_type = SimulatedStripe


class AllOf(Handle, multilock.MultiLock):
    """Several locks, all or none."""


class Thread:
    """A thread that acquires and releases locks, each with its own handle. It is interrupted sometimes."""

    handle: type[Handle] = Handle
    interrupted = INTERRUPTED
    keeps = 0.0  # longest time in seconds for which a lock stays taken after its holder has ended

    def __init__(self, process: Process, name: str, watcher: Any, ttl: float, primitive: Primitive) -> None:
        self.process = process
        self.name = self.holder = name
        self.host = process.name
        self.clock = process.clock
        self.pause, self.crash = process.pause, process.crash
        self.primitive = primitive
        self.mode = primitive.access
        self.performer = process.performer()
        self._watcher: Any = watcher
        self._ttl = ttl
        self._world = process.world
        self._lock: Handle | None = None

    @property
    def alive(self) -> bool:
        return self.process.alive

    @property
    def lease(self) -> Lease | None:
        """The lease that the thread believes to hold. ``None``: no lease."""
        held = self._lock.hold if self._lock else None
        return held.lease if held and held.active and not held.lost and self.alive else None

    @property
    def paused_until(self) -> float:
        return self.process.paused_until

    def asks(self, claim: Claim) -> None:
        self._watcher.asks(claim)

    def believe(self, handle: Handle) -> None:
        """Report the handle's belief to the watcher."""
        if self._lock is handle and self.lease is not None:
            self._watcher.believes(self, self.lease)

    def live(self, names: list[str], until: float) -> None:
        """Acquire and release locks until ``until`` and until the faults stop."""
        chance = self._world.random
        if self._world.now < max(until, self._world.troubled):
            wait = chance.choice((0.0, chance.uniform(0, 3 * self._ttl)))
            rest = chance.choice((0.0, chance.uniform(0, 0.3)))

            def then() -> None:
                self.process.after(rest, lambda: self.live(names, until))

            some = [chance.choice(names)]
            if self.primitive.kind in SEVERAL:
                some = sorted(chance.sample(names, chance.choice((2, len(names)))))
            self.take(some, wait, then)

    def _options(self) -> LockOptions:
        chance = self._world.random
        return LockOptions(self._ttl, fencing=chance.random() < 0.3, auto_renew=chance.random() < 0.8)

    def take(self, names: list[str], wait: float, then: Callable[[], None], seconds: float | None = None) -> None:
        chance, name = self._world.random, AND.join(names)
        options = self._options()
        places = tuple(keys_for(b"sim", each.encode()) for each in names)
        kind = {"striped": AnyOf, "multilock": AllOf}.get(self.primitive.kind, self.handle)
        handle: Any = kind(self.process, self.primitive, name, places[0], options)
        self._lock, handle.thread, handle._stripes = handle, self, places
        handle.names, handle.all_keys = names, places
        deadline = self.clock() + wait

        def got(outcome: Any, error: BaseException | None) -> None:
            self._watcher.waited(self, self.clock() - deadline)
            if isinstance(outcome, hold.Hold):
                self._world.say(self.holder, f"got {name}, number {outcome.fencing_token}")
                most = chance.uniform(0, 3 * self._ttl)
                end = self._world.now + (seconds or chance.choice((0.0, 0.002, 0.02, most, most)))
                self._hold(handle, end, then)
            else:
                self._world.say(self.holder, f"did not get {name}: {error or outcome}")
                self._watcher.over(handle.claim)
                self.process.after(chance.uniform(0, 0.2 if error is None else DETERRED), then)

        self._world.say(self.holder, f"wants {name} for {wait:.2f} s")
        self._do(handle.acquire_flow(wait), got)

    def _hold(self, handle: Handle, end: float, then: Callable[[], None]) -> None:
        chance = self._world.random

        def extended(left: float | None, error: BaseException | None) -> None:
            self._world.say(self.holder, f"extends {handle.name}: {error or left}")
            self.process.after(max(0.0, end - self._world.now), release)

        def release() -> None:
            self._world.say(self.holder, f"releases {handle.name}")
            claim = handle.required_hold().lease.claim

            def released(_: None, error: BaseException | None) -> None:
                if error is not None:
                    self._world.say(self.holder, f"released {handle.name}: {error!r}")
                self._ended(claim)
                then()

            self._do(handle.release_flow(), released)

        if end > self._world.now and chance.random() < 0.2:
            ttl = chance.choice((None, self._ttl / 2, MAX_TTL))
            pause = chance.uniform(0, end - self._world.now)
            self.process.after(pause, lambda: self._do(handle.extend_flow(ttl), extended))
        else:
            self.process.after(max(0.0, end - self._world.now), release)

    def _ended(self, claim: Claim) -> None:
        self._watcher.over(claim)

    def _do(self, flow: Any, then: Callable[[Any, BaseException | None], None]) -> None:
        interrupt = self.performer.drive(flow, then)
        if self._world.chance(self.interrupted):
            delay = self._world.random.uniform(0, self._ttl / 4)
            self._world.after(delay, lambda: self.process.later(lambda _: interrupt(), None))
