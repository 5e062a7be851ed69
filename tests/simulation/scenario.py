"""Plays one run of a seed: its participants, its faults, and the invariants."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from typing import Any, NamedTuple, NoReturn
from unittest import mock

from django_redlock.core.algorithms import retries
from django_redlock.core.algorithms.cluster import Cluster
from django_redlock.core.algorithms.quarantine import standalone_quarantine
from django_redlock.core.algorithms.redlock import Redlock
from django_redlock.core.algorithms.replicated import Replicated
from django_redlock.core.algorithms.single_node import SingleNode
from django_redlock.core.contract import Algorithm
from django_redlock.core.flow.requests import EvalScript
from django_redlock.core.flow.scripts import script
from django_redlock.core.primitives.base import ARRIVAL_ORDER, MUTEX, READERS_BEHIND_WRITERS, Primitive
from django_redlock.core.values import Claim, Lease, millis

from .aftermath import APART, LAG, MAX_TTL, RATE, TIMEOUT, at_rest
from .background import virtual
from .network import SLOW, Network
from .onlookers import Onlooker
from .performer import Performer
from .processes import Process
from .replication import Member, ReplicaSet, View
from .role_checks import RoleChecks
from .roles import virtual_elections
from .servers import Server, Slots
from .threads import SEVERAL, Thread, held
from .world import Clock, World

DURATION = {"replicas": 12.0}  # seconds; 5 with the other algorithms. A promotion pauses grants
FORGETS = "all", "old", "none"
MEMORY = {"cluster": ("all",), "unguarded": ("all",)}  # without a quarantine, a loss of data grants locks twice
ONE = {"single": SingleNode, "unguarded": SingleNode, "cluster": Cluster}  # algorithms in which a single node decides
ALONE = "mutex", *SEVERAL  # kinds with one holder per name


class Setting(NamedTuple):
    """The parameters of a run. The defaults are correct; tests that look for violations change them."""

    algorithm: str = "quorum"
    primitive: Primitive = MUTEX
    quarantine: bool = True
    calm: bool = False  # only slow messages, no faults: every leftover is an orphan
    slow: float | None = None  # share of slow messages
    apart: int = 4  # reduces how often a client can't reach a server
    threads: type[Thread] = Thread  # what the threads of the processes do
    onlookers: bool = False  # an observer asks for the holders
    performer: type[Performer] = Performer


class Violation(AssertionError):
    """A violated invariant."""


class Outcome(NamedTuple):
    grants: int
    log: list[tuple[float, str, str]]


class Scenario(RoleChecks):
    def __init__(self, seed: int, setting: Setting) -> None:
        super().__init__()
        self.world = World(seed)
        self.setting = setting
        self.alone = setting.primitive.kind in ALONE
        chance = self.world.random
        several = (3, 3, 5) if setting.primitive.limit == 1 else (2, 3, 4, 5)  # five take twice as long as three
        count = {"quorum": chance.choice(several), "replicas": chance.choice((2, 3, 4)), "cluster": 3}
        self.ttl = chance.uniform(0.8, MAX_TTL)
        self.duration = DURATION.get(setting.algorithm, 5.0)
        slow, cut, twice = (chance.choice(some) for some in ((0.0, 0.02, 0.1), (0.0, 0.02), (0.0, 0.02, 0.1)))
        if setting.slow is not None:
            slow = setting.slow
        if setting.calm:
            self.ttl, slow, cut = MAX_TTL, 0.1, 0.0
        self.network = Network(self.world, slow, cut, twice, again=not setting.calm)
        kind = Member if setting.algorithm == "replicas" else Server
        # Where a majority has forgotten the last fencing token, or a promoted replica never had it, the next is above
        # it because nothing is granted for longer than the servers' clocks differ.
        self.servers: list[Server] = [
            kind(self.world, f"node-{index}", self._rate(), chance.uniform(-APART, APART) + 1.8e9)
            for index in range(count.get(setting.algorithm, 1))
        ]
        members = [server for server in self.servers if isinstance(server, Member)]
        self.replicas = ReplicaSet(self.world, members) if members else None
        number = chance.choice((1, 2, 3)) + setting.primitive.limit - 1
        self.clients: list[Any] = [client for index in range(number) for client in self._threads(index)]
        if setting.primitive.kind == "rlock":  # two handles of one thread
            self.clients[-1].holder = self.clients[0].holder
        self.grants = 0
        self.killed = False  # whether all clients were killed at the end
        self._tokens: dict[str | None, int] = {}  # name -> the highest fencing token
        self._known: dict[bytes, dict[str | None, int]] = {}  # claim -> highest tokens at its request
        self._seen: set[bytes] = set()
        self._overs: Counter[bytes] = Counter()  # claim -> number of times its end was reported

    def _rate(self) -> float:
        return 1 + self.world.random.uniform(-RATE, RATE)

    def new_process(self, name: str) -> Process:
        clock = Clock(self.world, self._rate(), self.world.random.uniform(0, 1e5))
        return Process(self.world, name, clock, self._algorithm(clock), self._performer)

    def _threads(self, number: int) -> list[Thread]:
        process = self.new_process(f"client-{number}")
        count = self.world.random.choice((1, 3, 5) if self._on_one_server() else (1, 2))
        return [
            self.setting.threads(process, f"{process.name}.{index}", self, self.ttl, self.side(number + index))
            for index in range(count)
        ]

    def new_thread(self, name: str) -> Thread:
        """Returns the only thread of a new process, which is never interrupted."""
        thread = Thread(self.new_process(name), name, self, self.ttl, self.side(0))
        thread.interrupted = 0.0
        return thread

    def _on_one_server(self) -> bool:
        return ONE.get(self.setting.algorithm) is SingleNode

    def _performer(self, name: str, later: Callable[..., None]) -> Performer:
        servers: Sequence[Server] = self.servers if self.replicas is None else View(self.world, self.replicas)
        servers = Slots(servers) if self.setting.algorithm == "cluster" else servers
        return self.setting.performer(self.network, servers, name, TIMEOUT, later)

    def side(self, number: int) -> Primitive:
        """Returns a thread's primitive. Some threads of a rwlock read, some of several names acquire one."""
        primitive = self.setting.primitive
        if primitive.kind in SEVERAL and number % 3 == 2:
            return MUTEX
        if primitive.kind != "rwlock":
            return primitive
        order = READERS_BEHIND_WRITERS if self.setting.algorithm == "quorum" else ARRIVAL_ORDER
        return primitive._replace(access="r" if number % 2 else "w", queue_order=order)

    def _algorithm(self, clock: Clock) -> Algorithm:
        guard = (
            standalone_quarantine("sim", MAX_TTL)
            if self.setting.quarantine and self.setting.algorithm not in MEMORY
            else None
        )
        if self.setting.algorithm == "replicas":
            return Replicated(
                clock,
                key_prefix="sim",
                max_ttl=MAX_TTL,
                replicas="majority" if self.setting.quarantine else len(self.servers) // 2,
                wait=TIMEOUT,
                lag=LAG,
                quarantine=self.setting.quarantine,
            )
        if self.setting.algorithm in ONE:
            return ONE[self.setting.algorithm](clock, guard)
        return Redlock(len(self.servers), clock, guard, self.world.random.uniform)

    # ── what must hold ───────────────────────────────────────────────────────────────────────

    def fail(self, what: str) -> NoReturn:
        where = f"seed {self.world.seed} ({self.setting.algorithm}), at {self.world.now:.4f} s"
        raise Violation(f"{where}: {what}\n{self.world.timeline()}")

    def asks(self, claim: Claim) -> None:
        """Store the highest fencing tokens, which the tokens of this claim must exceed."""
        self._known[claim.acquisition_id] = self._tokens.copy()

    def believes(self, client: Thread, lease: Lease) -> None:
        """Check that no more clients believe to hold the lock than its limit allows."""
        names, now = set(held(lease.claim)), self.world.now
        others = {
            other.holder: other.name
            for other in (*self.clients, *self.on_their_way.values())
            if other.lease is not None
            and other.holder != client.holder
            and names & set(held(other.lease.claim))
            and (self.setting.primitive.kind != "rwlock" or "w" in (client.mode, other.mode))
            and now < other.clock.true(other.lease.valid_until)
        }
        if len(others) >= self.setting.primitive.limit and now < client.clock.true(lease.valid_until):
            all_ = "both" if len(others) == 1 else "all"
            self.fail(f"{' and '.join((client.name, *others.values()))} {all_} hold {lease.claim.name}")
        if lease.claim.token not in self._seen:
            self._seen.add(lease.claim.token)
            self.grants += 1
            self._granted(lease.claim, lease.fencing_token)

    def _granted(self, claim: Claim, token: int | None) -> None:
        """Check that fencing tokens grow. Tokens of permits that are requested at the same time may arrive in any
        order.
        """
        if token is None:
            return
        for name in held(claim):
            last = self._tokens.get(name, 0)
            known = last if self.alone else self._known[claim.acquisition_id].get(name, 0)
            if token <= known:
                self.fail(f"the fencing token {token} of {name} is not above {known}")
            self._tokens[name] = max(token, last)

    def over(self, claim: Claim) -> None:
        """Check later that a refused or released claim has left nothing on any server. After local hand-overs, the
        check applies to the release by the last holder, if its process is alive.
        """
        self._overs[claim.acquisition_id] += 1
        number = self._overs[claim.acquisition_id]

        def look() -> None:
            leases = [client.lease for client in self.clients if client.lease is not None]
            if self.killed:
                return
            if self._overs[claim.acquisition_id] > number or any(
                each.claim.acquisition_id == claim.acquisition_id for each in leases
            ):
                return
            for server, place in product(self.servers, claim.all_keys):
                if any(text.startswith(claim.acquisition_id) for text in server.model.texts(place.lock)):
                    self.fail(f"{claim.name} was left over on {server.name}")

        if self.setting.calm:
            self.world.after(SLOW[1] + 1.1, look)

    def waited(self, client: Thread, late: float) -> None:
        """Check that a wait ended at its deadline, within the node timeouts and the client's pauses."""
        if late > 8 * TIMEOUT and client.paused_until < self.world.now - 8 * TIMEOUT:
            self.fail(f"{client.name} waited {late:.2f} s beyond its deadline")

    # ── the run ──────────────────────────────────────────────────────────────────────────────

    def arm(self) -> None:
        """End the quarantine of the new servers."""
        for server in self.servers:
            server.run(EvalScript(script("arm"), (b"sim:marker",), (millis(MAX_TTL),)))

    def faults(self) -> None:
        chance = self.world.random
        if self.setting.calm:
            return
        for _ in range(chance.randrange(6)):
            server = chance.choice(self.servers)
            when = chance.uniform(0, self.duration)
            if chance.random() < 0.6:
                memory, downtime = chance.choice(MEMORY.get(self.setting.algorithm, FORGETS)), chance.uniform(0.01, 3)
                self.world.at(when, partial(server.crash, downtime, memory))
            elif chance.random() < 0.8 or self.setting.algorithm in MEMORY:
                self.world.at(when, partial(server.pause, chance.uniform(0.1, 3)))
            else:
                self.world.at(when, server.flush)
            self.world.at(chance.uniform(0, self.duration), server.save)
        for _ in range(chance.randrange(4) if self.replicas else 0):
            self.world.at(chance.uniform(0, self.duration), self.replicas.fail_over)  # type: ignore[union-attr]
        for _ in range(chance.randrange(self.setting.apart)):
            client, server, seconds = chance.choice(self.clients), chance.choice(self.servers), chance.uniform(0.1, 3)
            when = chance.uniform(0, self.duration)
            self.world.at(when, partial(self.network.part, client.host, server.name, seconds))
        for _ in range(chance.randrange(4)):
            client, when = chance.choice(self.clients), chance.uniform(0, self.duration)
            if chance.random() < 0.7:
                self.world.at(when, partial(client.pause, chance.uniform(0.1, 2 * MAX_TTL)))
            else:
                silently = self.setting.algorithm in ONE and chance.random() < 0.5
                self.world.at(when, partial(self.kill, client, silently=silently))

    def kill(self, client: Thread, *, silently: bool) -> None:
        """Kill the client's process. ``silently``: kill its host, so that its connections stay open and may get a
        grant.
        """
        if client.alive:
            client.crash()
        if silently:
            self.world.trouble(SLOW[1] + MAX_TTL)  # till that arrives, and the lease in its way ends
        else:
            client.performer.hang_up()

    def play(self) -> Outcome:
        self.arm()
        self.faults()
        several = self.setting.primitive.kind in SEVERAL
        names = ["a", "b", "c"][: self.world.random.choice((1, 2)) + several]
        for client in self.clients:
            self.world.after(self.world.random.uniform(0, 0.5), partial(client.live, names, self.duration))
        if self.setting.onlookers:
            self.world.after(0.0, partial(Onlooker(self).look, names, self.duration))
        self.world.run(self.duration)
        self.network.set(0.0, 0.0, 0.0)
        while self.world.now < self.world.troubled:
            self.world.run(self.world.troubled)
        self.world.say("", "── the faults stop ──")
        self.killed = self.world.chance(0.5)
        for client in self.clients if self.killed else ():
            self.kill(client, silently=False)
        at_rest(self, names)
        return Outcome(self.grants, self.world.log)


def play(seed: int, setting: Setting) -> Outcome:
    scenario = Scenario(seed, setting)
    pauses = mock.patch.object(retries, "random", random.Random(seed))  # it draws random numbers itself
    with ExitStack() as patches:
        patches.enter_context(pauses)
        patches.enter_context(virtual(scenario.world))
        patches.enter_context(virtual_elections(scenario.world.random))
        return scenario.play()
