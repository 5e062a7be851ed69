"""The background work of locks as events of the simulation, interleaved with all other events."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from django_redlock.core.background import work
from django_redlock.core.background.thread import SERVE_AGAIN_SECONDS, SLACK, Entry
from django_redlock.core.locks import hand_off, handle, hold, local_queue, semaphore
from django_redlock.core.locks.local_queue import Waiter
from django_redlock.core.process.caller import WakeEvent

from .world import World


class VirtualBackground(work.Background):
    """What a process does with leases in the background, without threads."""

    def report(self, call: Callable[[], object]) -> None:
        call()


class VirtualThread:
    """Takes the place of `DueThread`. It serves each hold and each orphan by itself."""

    started = True

    def __init__(self, entries: dict[bytes, Entry], serve: object, _ended: object) -> None:
        self._entries = entries
        self._serve = self._release if serve is work._release_due else self._renew

    def add(self, token: bytes, target: Any, due: float) -> None:
        process = (target if isinstance(target, work.Orphan) else target()).store
        self._entries[token] = entry = due, target
        delay = due - process.world.now
        early = process.world.random.uniform(0, SLACK)  # served together with another that is due earlier
        process.after(delay - early if delay > SLACK else max(0.0, delay), lambda: self._due(token, entry))

    def _due(self, token: bytes, entry: Entry) -> None:
        if self._entries.get(token) is entry:  # neither cancelled nor scheduled anew
            self._serve(token, entry[1])

    def _renew(self, _token: bytes, target: Any) -> None:
        held = target()
        extension = held.begin_renewal() if held is not None else None
        if held is None or extension is None:
            return
        process, lock = held.store, held._handle()  # the lock lives until the reply

        def renewed(outcomes: Any, error: BaseException | None) -> None:
            assert error is None, f"the renewal thread must not fail: {error!r}"
            process.world.say(lock.thread.holder, f"renewal of {held.name}: {type(outcomes[0]).__name__}")
            held.on_extended(extension, outcomes[0])

        process.performer().drive(process.algorithm.extend_many(held.primitive, [extension]), renewed)

    def _release(self, token: bytes, orphan: Any) -> None:
        def released(_: Any, error: BaseException | None) -> None:
            if self._entries.get(token, (0.0, None))[1] is not orphan:
                return
            if error is None or orphan.store.clock() >= orphan.until:
                del self._entries[token]
            else:
                self.add(token, orphan, orphan.store.world.now + SERVE_AGAIN_SECONDS)

        orphan.store.performer().drive(orphan.release_flow(), released)


class Virtual(WakeEvent):
    """A wake-up in the simulation."""

    was_set = False

    def wake(self) -> None:
        """Wake the waiter, which replaces this method."""

    def set(self) -> None:
        super().set()
        self.was_set = True
        self.wake()


class VirtualWaiter(Virtual, Waiter):
    """A waiter that is woken in the simulation."""


@contextmanager
def virtual(world: World) -> Iterator[None]:
    """Run locks in ``world``: their renewal, threads and random numbers are simulated within this context."""
    background, numbers = VirtualBackground(), itertools.count(1)
    new_token = lambda: b"%016x" % next(numbers) + b"0" * 8  # noqa: E731
    with ExitStack() as ends:
        for module, name, double in (
            *((module, "background", background) for module in (hold, handle, hand_off, local_queue)),
            (work, "DueThread", VirtualThread),
            (work, "monotonic", lambda: world.now),
            (hold, "logger", SimpleNamespace(warning=lambda *_: None)),
            (local_queue, "Waiter", VirtualWaiter),
            (local_queue, "calling", lambda: id(world.running)),
            (hold, "WakeEvent", Virtual),
            (semaphore, "_starts", itertools.count(-os.getpid())),
            (handle, "describe_owner", lambda *_: b'{"label":"sim"}'),
            (handle, "new_token", new_token),
            (hand_off, "new_token", new_token),
        ):
            ends.enter_context(mock.patch.object(module, name, double))
        try:
            yield
        finally:
            for flow in world.flows:  # flows that have not ended, or whose client is dead
                flow.close()
