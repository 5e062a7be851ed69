"""A process, which runs, pauses and crashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_redlock.core.contract import Algorithm
from django_redlock.core.keys import Keys
from django_redlock.core.locks import local_queue
from django_redlock.core.primitives.multi import ADOPT

from .aftermath import MAX_TTL
from .performer import Performer, Then
from .world import Clock, World

COHORT = 4  # number of local hand-overs in a row


class Process:
    """A process, which runs, pauses and crashes: the store (`core.contract.Store`) of its threads, and connections."""

    alias, hook, key_prefix, max_ttl = "", None, "sim", MAX_TTL
    adopting, not_adopting = ADOPT, ""

    def __init__(
        self, world: World, name: str, clock: Clock, algorithm: Algorithm, connect: Callable[..., Performer]
    ) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.alive = True
        self.paused_until = 0.0
        self.algorithm = algorithm
        self.in_flight: dict[Any, Any] = {}
        self._connect = connect
        self.local_queues = local_queue.LocalQueues(self, COHORT)

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
        self.alive = False
        self.world.say(self.name, "crashed")

    def server_of(self, keys: Keys) -> str:
        return ""

    def check_ttl(self, ttl: Any) -> float:
        return float(ttl)

    def perform(self, request: Any) -> Any:
        raise NotImplementedError  # flows are driven, so no call awaits

    aperform = perform

    def performer(self) -> Performer:
        performer = self._connect(self.name, self.later)
        performer._in_flight = self.in_flight
        return performer
