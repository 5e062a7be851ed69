"""Servers that crash, lose data, pause, and have inaccurate clocks."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django_redlock.core.flow.requests import EvalScript
from django_redlock.core.keys import hash_tag

from .redis_model import Model
from .world import Clock, World


class Server:
    def __init__(self, world: World, name: str, rate: float, offset: float) -> None:
        self.world = world
        self.name = name
        self.clock = Clock(world, rate, offset)
        self.up = True
        self.life = 0
        self.term = 0
        self._paused_until = 0.0
        self._blocked: dict[bytes, list[Callable[[], None]]] = {}
        self.model = self._new_model()
        self._saved = self.model.copy()

    def _new_model(self) -> Model:
        self.identify()
        return Model(self.clock.micros, self._info, self._wake)

    def identify(self) -> None:
        """Get a new replication id, as at each start and each promotion."""
        what = repr((self.world.seed, self.name, self.life, self.term))
        self._replid = hashlib.sha1(what.encode(), usedforsecurity=False).hexdigest().encode()

    def _info(self, section: bytes) -> bytes:
        return b"# %b\r\nmaster_replid:%b\r\n" % (section, self._replid)

    def handle(self, work: Callable[..., None], *args: Any) -> None:
        """Run ``work`` now, or when the server wakes: requests in the socket of a stopped server are not lost."""
        if self.world.now < self._paused_until:
            self.world.at(self._paused_until, self._wakes, self.life, work, *args)
        elif self.up:
            work(*args)

    def _wakes(self, life: int, work: Callable[..., None], *args: Any) -> None:
        if self.up and self.life == life:
            self.handle(work, *args)

    def run(self, run: EvalScript) -> Any:
        return self.model.run(run.script, run.keys, run.args)

    def block(
        self, keys: Sequence[bytes], seconds: float, there: Callable[[], bool], then: Callable[[bytes | None], None]
    ) -> None:
        """Execute BLPOP. ``then`` gets the element, or ``None`` after the timeout; the connection's next command runs
        right after. The command and its successor are dropped when the client is no longer ``there``.
        """
        for each in keys:
            value = self.model.pop(each)
            if value is not None:
                then(value)
                return
        done = False
        life = self.life

        def finish(value: bytes | None) -> None:
            nonlocal done
            if not done and there():
                done = True
                then(value)

        def woken(key: bytes) -> None:
            if not done and there():
                finish(self.model.pop(key))

        for each in keys:
            self._blocked.setdefault(each, []).append(partial(woken, each))

        def expire() -> None:
            if self.life == life and self.up:
                self.handle(finish, None)

        self.world.after(seconds, expire)

    def _wake(self, key: bytes) -> None:
        # Redis serves blocked clients after the script that pushed, in order of arrival.
        self.world.after(0.0, self._serve, key)

    def _serve(self, key: bytes) -> None:
        while self._blocked.get(key) and self.model.texts(key):
            self._blocked[key].pop(0)()

    # ── faults ───────────────────────────────────────────────────────────────────────────────

    def pause(self, seconds: float) -> None:
        self.world.trouble(seconds)
        self._paused_until = self.world.now + seconds
        self.world.say(self.name, f"paused for {seconds:.2f} s")

    def save(self) -> None:
        self._saved = self.model.copy()

    def crash(self, downtime: float, memory: str) -> None:
        """Kill the server and restart it with ``memory``: all data (AOF), old data (RDB) or none."""
        if not self.up:
            return
        before, saved = self.model, self._saved
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
            if memory != "none":
                self.model.load(saved if memory == "old" else before.copy())
            self.world.say(self.name, "is back")
            self.restarted()

        self.world.after(downtime, restart)

    def restarted(self) -> None:
        """Run after a restart. Does nothing for a single server."""

    def flush(self) -> None:
        self.world.forget()
        self.model.flush()
        self.world.say(self.name, "flushed")


class Slots(tuple[Server, ...]):
    """The servers of a cluster. Each serves some of the hash tags."""

    __slots__ = ()

    def place(self, key: bytes) -> int:
        return sum(hash_tag(key)) % len(self)
