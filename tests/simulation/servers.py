"""Servers that crash, forget, pause, and run on clocks of their own."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from django_redlock.core.keys import hash_tag
from django_redlock.core.requests import Run

from .redis_model import Model
from .world import Clock, World


@lru_cache(maxsize=64)
def _replid(*what: object) -> str:
    return hashlib.sha1(repr(what).encode(), usedforsecurity=False).hexdigest()


class Server:
    """One Redis server."""

    def __init__(self, world: World, name: str, rate: float, offset: float) -> None:
        self.world = world
        self.name = name
        self.clock = Clock(world, rate, offset)
        self.up = True
        self.life = 0
        self.term = 0
        self._paused_until = 0.0
        self._saved: tuple[dict[str, Any], dict[str, int]] = ({}, {})
        self._blocked: dict[str, list[Callable[[], None]]] = {}
        self.model = self._new_model()

    def _new_model(self) -> Model:
        model = Model(lambda: int(self.clock() * 1e6), self._info)
        model.pushed = self._wake
        return model

    @property
    def replid(self) -> str:
        """A new one with each start, and each promotion."""
        return _replid(self.world.seed, self.name, self.life, self.term)

    def _info(self, section: str) -> str:
        return f"# {section}\r\nmaster_replid:{self.replid}\r\n"

    def handle(self, work: Callable[[], None]) -> None:
        """Do ``work`` now, or when the server wakes: what lies in a stopped server's socket is not lost."""
        life = self.life
        if self.world.now < self._paused_until:
            self.world.at(self._paused_until, lambda: self.handle(work) if self.up and self.life == life else None)
        elif self.up:
            work()

    def run(self, run: Run) -> Any:
        """The reply of a script."""
        return self.model.run(run.script, run.keys, run.args)

    def block(
        self, keys: Sequence[bytes], seconds: float, there: Callable[[], bool], then: Callable[[str | None], None]
    ) -> None:
        """BLPOP: ``then`` gets the element or ``None``; at once after it the connection's next command can run.

        It is forgotten, and that command with it, once the client is not ``there`` any more.
        """
        lists = [key.decode("latin-1") for key in keys]
        for each in lists:
            value = self.model.pop(each)
            if value is not None:
                then(value)
                return
        done = False
        life = self.life

        def finish(value: str | None) -> None:
            nonlocal done
            if not done and there():
                done = True
                then(value)

        def woken(key: str) -> None:
            if not done and there():
                finish(self.model.pop(key))

        for each in lists:
            self._blocked.setdefault(each, []).append(partial(woken, each))

        def expire() -> None:
            if self.life == life and self.up:
                self.handle(lambda: finish(None))

        self.world.after(seconds, expire)

    def _wake(self, key: str) -> None:
        # Redis serves blocked clients after the script that pushed, in the order of their arrival.
        self.world.after(0.0, lambda: self._serve(key))

    def _serve(self, key: str) -> None:
        while self._blocked.get(key) and self.model.live(key):
            self._blocked[key].pop(0)()

    # ── faults ───────────────────────────────────────────────────────────────────────────────

    def pause(self, seconds: float) -> None:
        """SIGSTOP for a while."""
        self.world.trouble(seconds)
        self._paused_until = self.world.now + seconds
        self.world.say(self.name, f"paused for {seconds:.2f} s")

    def save(self) -> None:
        """What an old RDB would hold."""
        self._saved = copy.deepcopy((self.model.data, self.model.ends))

    def crash(self, downtime: float, memory: str) -> None:
        """kill -9, and a restart with ``memory``: all (AOF), old (RDB) or none."""
        if not self.up:
            return
        kept = {"all": (self.model.data, self.model.ends), "old": self._saved, "none": ({}, {})}[memory]
        self.up = False
        self._blocked = {}
        self.world.trouble(downtime)
        if memory != "all":
            self.world.forget()
        self.world.say(self.name, f"killed, back in {downtime:.2f} s with {memory} of its data")

        def restart() -> None:
            self.up = True
            self.life += 1
            self._paused_until = 0.0
            self.model = self._new_model()
            self.model.data, self.model.ends = copy.deepcopy(kept)
            self.world.say(self.name, "is back")
            self.restarted()

        self.world.after(downtime, restart)

    def restarted(self) -> None:
        """What follows a restart."""

    def flush(self) -> None:
        """FLUSHALL."""
        self.world.forget()
        self.model.data.clear()
        self.model.ends.clear()
        self.world.say(self.name, "flushed")


class Slots(tuple[Server, ...]):
    """The servers of a cluster, among which the hash tags are shared out."""

    __slots__ = ()

    def place(self, key: bytes) -> int:
        """Which server has this key."""
        return sum(hash_tag(key)) % len(self)
