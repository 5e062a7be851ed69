"""The background work of locks as events of the simulation, interleaved with all other events."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from django_redlock.core.locks import hand_off, handle, hold, local_queue, striped
from django_redlock.core.locks.local_queue import Waiter
from django_redlock.core.primitives.base import Primitive
from django_redlock.core.process.caller import WakeEvent
from django_redlock.core.renewal.registry import Orphan
from django_redlock.core.renewal.thread import SLACK
from django_redlock.core.values import Claim

from .processes import Process
from .threads import SimulatedHold
from .world import World


class Background:
    """Replaces `core.renewal.registry.renewal` by events: one for each lock and each orphan."""

    def __init__(self) -> None:
        self._owner: dict[bytes, Process] = {}

    def schedule(self, hold: Any, delay: float) -> None:
        self._later(hold.store, hold.lease.claim.token, weakref.ref(hold), delay, self._renew)

    def schedule_release(self, token: bytes, orphan: Orphan, delay: float) -> None:
        self._later(orphan.store, b"release " + token, orphan, delay, self._release_orphan)

    def _later(self, process: Any, token: bytes, target: Any, delay: float, serve: Callable[..., None]) -> None:
        self._owner[token] = process
        process.watched[token] = target

        def due() -> None:
            if process.watched.get(token) is target:
                serve(process, token, target)

        early = process.world.random.uniform(0, SLACK)  # served together with another that is due earlier
        process.after(delay - early if delay > SLACK else max(0.0, delay), due)

    def report(self, call: Callable[[], object]) -> None:
        call()

    def cancel(self, token: bytes) -> None:
        if token in self._owner:
            self._owner[token].watched.pop(token, None)

    def release_later(
        self,
        store: Any,
        primitive: Primitive,
        claim: Claim,
        *,
        waited: bool = False,
        after: float = 0.0,
        keep_until: float = 0.0,
    ) -> None:
        orphan = Orphan(store, primitive, claim, store.clock() + claim.ttl, waited, keep_until)
        self.schedule_release(claim.token, orphan, after and after + SLACK)

    def _renew(self, process: Process, token: bytes, target: weakref.ref[SimulatedHold]) -> None:
        held = target()
        extension = held.begin_renewal() if held is not None else None
        if held is None or extension is None:
            return
        lock: Any = held._handle()

        def renewed(outcomes: Any, error: BaseException | None) -> None:
            assert error is None, f"the renewal thread must not fail: {error!r}"
            process.world.say(lock.thread.holder, f"renewal of {held.name}: {type(outcomes[0]).__name__}")
            held.on_extended(extension, outcomes[0])

        flow = process.algorithm.extend_many(held.primitive, [(extension.lease, extension.ttl)])
        process.performer().drive(flow, renewed)

    def _release_orphan(self, process: Process, token: bytes, orphan: Orphan) -> None:
        def released(_: Any, error: BaseException | None) -> None:
            if error is None or process.clock() >= orphan.until:
                self.cancel(token)
            elif process.watched.get(token) is orphan:
                self._later(process, token, orphan, 0.5, self._release_orphan)

        process.performer().drive(orphan.release_flow(), released)


class Virtual(WakeEvent):
    """A wake-up in the simulation."""

    was_set = False

    def wake(self) -> None:
        """Wake the waiter, which replaces this method."""

    def set(self) -> None:
        super().set()
        self.was_set = True
        self.wake()


class VirtualTicket(Virtual, Waiter):
    """A waiter that is woken in the simulation."""


@contextmanager
def virtual(world: World) -> Iterator[None]:
    """Run locks in ``world``: their renewal, threads and random numbers are simulated within this context."""
    background, numbers = Background(), itertools.count(1)
    with ExitStack() as ends:
        for module in (hold, handle, hand_off, local_queue):
            ends.enter_context(mock.patch.object(module, "renewal", background))
        ends.enter_context(mock.patch.object(hold, "logger", SimpleNamespace(warning=_nothing)))
        ends.enter_context(mock.patch.object(local_queue, "Waiter", VirtualTicket))
        ends.enter_context(mock.patch.object(hold, "WakeEvent", Virtual))
        ends.enter_context(mock.patch.object(striped, "_starts", itertools.count(-os.getpid())))
        for module, name, function in (
            (local_queue, "calling", lambda: id(world.running)),
            (handle, "describe_owner", lambda *_: b'{"label":"sim"}'),
            (handle, "new_token", lambda: b"%016x" % next(numbers) + b"0" * 8),
            (hand_off, "new_token", lambda: b"%016x" % next(numbers) + b"0" * 8),
        ):
            ends.enter_context(mock.patch.object(module, name, function))
        try:
            yield
        finally:
            for flow in world.flows:  # flows that have not ended, or whose client is dead
                flow.close()


def _nothing(*_: object, **__: object) -> None:
    pass
