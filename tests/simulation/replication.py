"""A primary with replicas: asynchronous replication, acknowledgements, and promotions that some clients notice late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redis import ReadOnlyError

from django_redlock.core.flow.requests import EvalScript, Fault

from .redis_model import Model
from .servers import Server
from .world import World

SHORTEST, VARIES = 0.0002, 0.01 - 0.0002  # seconds for a write to a replica, or its acknowledgement
LATE = 3600.0  # assumed age of the acknowledgement of a replica that has sent none
SYNC = 2.0  # seconds within which a connected replica has a full copy and has acknowledged it
PING = 1.0  # interval in seconds of a replica's acknowledgements


class Member(Server):
    """A server that is the primary or replicates the primary."""

    def __init__(self, world: World, name: str, rate: float, offset: float) -> None:
        self.master: Member | None = None
        self.reachable = True  # for the other members
        super().__init__(world, name, rate, offset)
        self.offset = 0
        self._seen: dict[Member, tuple[int, float]] = {}  # replica -> acknowledged offset, and its time
        self._waiting: list[tuple[int, int, Callable[[int], None]]] = []
        self._applied = 0.0

    def _new_model(self) -> Model:
        model = super()._new_model()
        return Model(model.clock, model.info, model.pushed, self._wrote)

    def _info(self, section: bytes) -> bytes:
        lines = [super()._info(section)]
        for index, (replica, (_, when)) in enumerate(self._seen.items()):
            lag = int(self.world.now - when)
            lines.append(f"slave{index}:ip={replica.name},state=online,offset=0,lag={lag}".encode())
        return b"\r\n".join(lines)

    def run(self, run: EvalScript) -> Any:
        if self.master is not None:
            return Fault(ReadOnlyError("You can't write against a read only replica."))
        return super().run(run)

    # ── replication ──────────────────────────────────────────────────────────────────────────

    def follow(self, master: Member) -> None:
        """Replicate ``master``, starting with a full copy."""
        self.master, self._seen, self._waiting = master, {}, []
        term, life = master.term, self.life

        def copied() -> None:
            if self.master is not master or self.life != life or master.term != term:
                return
            if not self._linked(master, term):
                self.world.after(0.5, copied)
            else:
                self.model.load(master.model.copy())
                master._seen.setdefault(self, (-1, -LATE))  # later writes follow the full copy
                self._acknowledge(master, term, master.offset)
                self._ping(master, term, life)

        self.world.after(self.world.random.uniform(0.01, 1.0), copied)

    def restarted(self) -> None:
        """Rejoin the group after a restart, with the replicas of this server."""
        self.offset, self._seen, self._waiting = 0, {}, []
        self.rejoin(self)

    def rejoin(self, member: Member) -> None:
        """Rejoin the group. The group replaces this method."""

    def promote(self) -> None:
        """Become the primary, with the data that has arrived so far."""
        self.master, self._seen, self._waiting = None, {}, []
        self.term += 1
        self.identify()
        self.world.say(self.name, "is promoted")

    def _linked(self, master: Member, term: int) -> bool:
        up = self.up and master.up and self.reachable and master.reachable
        return up and self.master is master and master.term == term and master.master is None

    def _ping(self, master: Member, term: int, life: int) -> None:
        if self.master is master and self.life == life:
            if self._linked(master, term):
                self._acknowledge(master, term, master._seen.get(self, (0, 0.0))[0])
            self.world.after(PING, self._ping, master, term, life)

    def _wrote(self, changes: Any) -> None:
        if self.master is not None:
            return
        self.offset += 1
        offset, term = self.offset, self.term
        for replica in tuple(self._seen):
            replica._receive(self, term, offset, changes)

    def _receive(self, master: Member, term: int, offset: int, changes: Any) -> None:
        self._applied = max(self._applied + 1e-6, self.world.now + SHORTEST + VARIES * self.world.draw())
        self.world.at(self._applied, self.handle, self._apply, master, term, offset, changes)

    def _apply(self, master: Member, term: int, offset: int, changes: Any) -> None:
        if self._linked(master, term):
            self.model.apply(changes)
            self._acknowledge(master, term, offset)

    def _acknowledge(self, master: Member, term: int, offset: int) -> None:
        self.world.after(SHORTEST + VARIES * self.world.draw(), master.handle, self._confirm, master, term, offset)

    def _confirm(self, master: Member, term: int, offset: int) -> None:
        if self._linked(master, term):
            master._seen[self] = max(offset, master._seen.get(self, (0, 0.0))[0]), self.world.now
            master._settle()

    def wait(self, count: int, seconds: float, then: Callable[[int], None]) -> None:
        """Execute WAIT. ``then`` gets the number of replicas that have acknowledged all writes until now."""
        entry = (self.offset, count, then)
        self._waiting.append(entry)

        def expire() -> None:
            if entry in self._waiting:
                self._waiting.remove(entry)
                then(self._acknowledged(entry[0]))

        self.world.after(seconds, self.handle, expire)
        self._settle()

    def _acknowledged(self, offset: int) -> int:
        return sum(seen >= offset for seen, _ in self._seen.values())

    def _settle(self) -> None:
        for entry in tuple(self._waiting):
            offset, count, then = entry
            if self._acknowledged(offset) >= count:
                self._waiting.remove(entry)
                then(self._acknowledged(offset))


class ReplicaSet:
    """A primary, its replicas, and each client's view of the primary."""

    def __init__(self, world: World, members: list[Member]) -> None:
        self.world = world
        self.members = members
        self.primary = members[0]
        for member in members:
            member.rejoin = self._rejoin  # type: ignore[method-assign]
        for member in members[1:]:
            member.follow(self.primary)

    def _rejoin(self, member: Member) -> None:
        if member is not self.primary:
            member.follow(self.primary)
            return
        member.master = None
        for replica in self.members:
            if replica is not member:
                replica.follow(member)

    def fail_over(self) -> None:
        """Promote a replica. The old primary and the clients notice it later, and until then the old primary still
        answers.
        """
        old = self.primary
        replicas = [member for member in self.members if member is not old and member.up and member.master is old]
        if not replicas:
            return
        new = self.primary = self.world.random.choice(replicas)
        new.promote()
        for member in self.members:
            if member not in (old, new):
                member.follow(new)
        old.reachable = False
        self.world.forget(until=float("inf"))  # some clients may still use the old primary
        late = self.world.random.uniform(0.0, 5.0)
        self.world.trouble(late)

        def told() -> None:
            old.reachable = True
            if self.primary is not old:
                old.follow(self.primary)
                self.world.say(old.name, "is told that it is a replica now")

        self.world.after(late, told)


class View(Sequence[Server]):
    """The single node that a client knows: its current view of the primary, which may be some seconds old."""

    def __init__(self, world: World, replicas: ReplicaSet) -> None:
        self._world = world
        self._replicas = replicas
        self._known = replicas.primary

    def __getitem__(self, index: Any) -> Any:
        if self._known is not self._replicas.primary and self._world.chance(0.2):
            self._known = self._replicas.primary
        return self._known

    def __len__(self) -> int:
        return 1
