"""Clients that acquire, hold, renew and release locks as `Lock` does, and that pause and crash."""

from collections.abc import Callable
from typing import Any

from django_redlock.core.contract import Algorithm
from django_redlock.core.flow.requests import Fault
from django_redlock.core.keys import keys_for, lock_name_of
from django_redlock.core.primitives.base import Primitive
from django_redlock.core.values import Claim, Lease

from .performer import Performer, Then
from .world import Clock, World

RENEWALS = 3  # renewals in a ttl
DETERRED = 1.0  # the longest rest in seconds of a client that no server serves: its next try would fail, too
SEVERAL = "striped", "multilock"  # kinds with several names in one claim
AND = " + "


def held(claim: Claim) -> list[str | None]:
    """Returns the names from which a granted claim excludes other claims."""
    return [lock_name_of(b"sim", place.lock) for place in (claim.all_keys if claim.require_all else claim.all_keys[:1])]


class Host:
    """A process, which runs, pauses and crashes."""

    def __init__(self, world: World, name: str, clock: Clock) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.alive = True
        self.paused_until = 0.0

    def later(self, event: Then, value: Any) -> None:
        """Handle an event as soon as this process runs."""
        if not self.alive:
            return
        if self.world.now < self.paused_until:
            self.world.at(self.paused_until, lambda: self.later(event, value))
        else:
            event(value)

    def after(self, delay: float, event: Callable[[], None]) -> None:
        """Run an event after ``delay`` seconds, when this process runs."""
        self.world.after(delay, lambda: self.later(lambda _: event(), None))

    def pause(self, seconds: float) -> None:
        """Stop the process, as SIGSTOP, garbage collection or a migrated virtual machine does."""
        self.paused_until = max(self.paused_until, self.world.now + seconds)
        self.world.say(self.name, f"paused for {seconds:.2f} s")

    def crash(self) -> None:
        """End the process without releasing its locks."""
        self.alive = False
        self.world.say(self.name, "crashed")


class Client(Host):
    """A process with one handle of one thread. ``holder`` identifies the thread."""

    def __init__(
        self, world: World, name: str, clock: Clock, watcher: Any, ttl: float, fencing: bool, primitive: Primitive
    ) -> None:
        super().__init__(world, name, clock)
        self.host = self.holder = name
        self.lease: Lease | None = None
        self._watcher = watcher
        self._ttl = ttl
        self._fencing = fencing
        self.primitive = primitive
        self.mode = primitive.access
        self._count = 0
        self.performer: Performer
        self.algorithm: Algorithm

    def crash(self) -> None:
        super().crash()
        self.lease = None

    def live(self, names: list[str], until: float) -> None:
        """Acquire and release locks until ``until`` and until the faults stop."""
        if self.world.now >= max(until, self.world.troubled):
            return
        name = self.world.random.choice(names)
        if self.primitive.kind in SEVERAL:
            some = self.world.random.sample(names, self.world.random.randint(2, len(names)))
            name = AND.join(some if self.primitive.kind == "striped" else sorted(some))
        wait = self.world.random.choice((0.0, self.world.random.uniform(0, 3 * self._ttl)))
        rest = self.world.random.uniform(0, 0.3)
        self.take(name, wait, lambda: self.after(rest, lambda: self.live(names, until)))

    def take(self, name: str, wait: float, then: Callable[[], None], hold: float | None = None) -> None:
        """Acquire a lock, hold it for a while, release it."""
        self._count += 1
        token = f"{self.name}-{self._count}".encode().ljust(16, b".") + b"0" * 8
        claim = Claim(
            name,
            tuple(keys_for(b"sim", each.encode()) for each in name.split(AND)),
            token,
            b'{"label":"%b"}' % self.name.encode(),
            self._ttl,
            self._fencing,
            self.holder.encode(),
            self.primitive.kind == "multilock",
        )
        self._watcher.asks(claim)
        deadline = self.clock() + wait

        def got(outcome: Any, error: BaseException | None) -> None:
            self._watcher.waited(self, self.clock() - deadline)
            if isinstance(outcome, Lease) and self.clock() < outcome.valid_until:
                what = AND.join(map(str, held(outcome.claim)))
                self.world.say(self.name, f"got {what}, fencing token {outcome.fencing_token}")
                self._hold(outcome, then, hold)
                return
            self.world.say(self.name, f"did not get {name}: {error or outcome}")
            if isinstance(outcome, Lease):
                self._free(outcome.claim, then)
            else:
                self._watcher.over(claim)
                self.after(0.0 if error is None else self.world.random.uniform(0, DETERRED), then)

        self.world.say(self.name, f"wants {name} for {wait:.2f} s")
        self.performer.drive(self.algorithm.acquire(self.primitive, claim, deadline), got)

    def _hold(self, lease: Lease, then: Callable[[], None], hold: float | None) -> None:
        self.lease = lease
        self._watcher.believes(self, lease)
        chance = self.world.random
        end = self.world.now + (hold or chance.choice((0.0, 0.02, chance.uniform(0, 3 * self._ttl))))
        renews = self.world.chance(0.8)
        self._tend(lease.claim, end, renews, then)

    def _tend(self, claim: Claim, end: float, renews: bool, then: Callable[[], None]) -> None:
        lease = self.lease
        if lease is None or self.clock() >= lease.valid_until:
            self.world.say(self.name, f"lost {claim.name}")
            self._free(claim, then)
        elif self.world.now >= end:
            self.world.say(self.name, f"releases {claim.name}")
            self._free(claim, then)
        elif renews:

            def extended(outcomes: Any, error: BaseException | None) -> None:
                outcome = outcomes[0] if outcomes else Fault(Exception(error))
                if isinstance(outcome, Lease):
                    self.lease = outcome
                    self.world.say(self.name, f"renewed {claim.name}")
                    self._watcher.believes(self, outcome)
                elif outcome is None:
                    self.lease = None
                delay = self._ttl / (RENEWALS if isinstance(outcome, Lease) else 20)
                self.after(min(delay, max(0.0, end - self.world.now)), lambda: self._tend(claim, end, renews, then))

            self.performer.drive(self.algorithm.extend_many(self.primitive, [(lease, self._ttl)]), extended)
        else:
            left = max(0.0, min(end, self.clock.true(lease.valid_until)) - self.world.now)
            self.after(left, lambda: self._tend(claim, end, renews, then))

    def _free(self, claim: Claim, then: Callable[[], None]) -> None:
        self.lease = None

        def freed(outcome: Any, error: BaseException | None) -> None:
            if error is None or self.world.now > start + claim.ttl:
                self._watcher.over(claim)
                then()
            else:  # as the renewal thread does with a release that failed
                self.after(0.5, attempt)

        def attempt() -> None:
            self.performer.drive(self.algorithm.release(self.primitive, claim), freed)

        start = self.world.now
        attempt()
