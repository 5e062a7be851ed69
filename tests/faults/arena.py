"""Where clients fight: the servers of one kind of store, what can be done to them, and the check of a fight."""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.backends.server import ServerBackend
from testproject.redis_server import RedisServer
from tests.faults.contenders import Job, contend
from tests.support.group import Group
from tests.support.overlap import overlaps, read
from tests.support.processes import Worker
from tests.support.proxy import Proxy
from tests.support.replicas import Replicated
from tests.support.sentinel import Sentinel
from tests.support.service import poll, revive

CLIENTS = 3  # processes
SHORT = {"ttl": 0.5, "max_ttl": 0.6, "node_timeout": 0.15}  # seconds
RECOVERY = 20  # seconds within which there must be grants again


class Outcome(NamedTuple):
    """What came out of a fight: who believed at once, what happened how often, and fencing tokens that did not grow."""

    overlaps: list[Any]
    counts: Counter[str]
    stale_tokens: int

    @property
    def availability(self) -> float:
        """The share of attempts that the store could decide."""
        told = self.counts["granted"] + self.counts["refused"]
        return told / (told + self.counts["unavailable"] or 1)


class Clients:
    """Processes that are used for many fights; those that were killed are replaced."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    def begin(self, jobs: list[Job]) -> None:
        while len(self.workers) < len(jobs):
            self.workers.append(Worker(contend))
        for worker, job in zip(self.workers, jobs, strict=True):
            worker.tell("fight", **job._asdict())

    def end(self) -> Counter[str]:
        for worker in self.workers:
            worker.resume()
            worker.tell("stop")
        return sum((Counter(worker.expect("stopped", 30)) for worker in self.workers), Counter())

    def kill(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.__exit__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self.workers:
            worker.__exit__()


class Arena:
    """`servers`, each behind the proxy of the same place in `proxies`; a subclass brings up the kind of store."""

    backend: type[ServerBackend] = RedisBackend
    options: dict[str, Any] = {**SHORT, "quarantine": True}

    def __init__(self, **options: Any) -> None:
        self.options = {**self.options, **options}
        self.clients = Clients()
        self.prefix = ""
        self._ends = contextlib.ExitStack()
        self._files = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="fight-")))
        self._numbers = itertools.count()
        self.servers: list[RedisServer] = []
        self.proxies: list[Proxy] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.push(self.__exit__)
            self.build()
            self._ends.enter_context(self.clients)
            undo.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.close()

    def build(self) -> None:
        """Start what is needed."""
        raise NotImplementedError

    def locations(self, client: int) -> Any:
        """The LOCATION for that client."""
        return self.proxies[0].url

    def heal(self) -> None:
        """Everything runs, and is empty."""
        for proxy in self.proxies:
            proxy.restore()
        for server in self.servers:
            revive(server)
            with server.client() as client:
                client.flushall()

    def store(self, client: int = 0, **options: Any) -> ServerBackend:
        """A backend of our own, as the client has it."""
        return self.backend(self.locations(client), **{**self.options, "key_prefix": self.prefix, **options})

    def arm(self) -> None:
        """Take the servers into service."""
        store = self.store(node_timeout=1)
        poll(lambda: set(store.arm().values()) == {"armed"}, timeout=RECOVERY, what="servers in service")
        store.close()

    def fight(self, fault: Callable[[Self, random.Random], None], seed: int, *, forks: bool = False) -> Outcome:
        """One fight, with the fault in its midst. There are grants before it, and must be after it."""
        rng = random.Random(seed)
        self.heal()
        self.prefix = f"fight-{secrets.token_hex(4)}"
        self.arm()
        file = self._files / str(next(self._numbers))
        file.touch()
        jobs = [
            Job(
                f"{self.backend.__module__}.{self.backend.__name__}",
                self.locations(client),
                {**self.options, "key_prefix": self.prefix},
                str(file),
                f"client {client}",
                seed,
                in_asyncio=client % 2 == 1,
                forks=forks,
            )
            for client in range(CLIENTS)
        ]
        self.clients.begin(jobs)
        try:
            self.wait_for_grants(file, 3)
            time.sleep(rng.uniform(0, 0.3))
            fault(self, rng)
            self.wait_for_grants(file, 3)
            time.sleep(rng.uniform(0, 0.2))
        except TimeoutError as error:
            raise TimeoutError(f"{error}; meanwhile {dict(self.clients.end())}") from error
        counts = self.clients.end()
        beliefs = read(file)
        tokens = [int(belief.worker.partition("#")[2]) for belief in beliefs]
        stale = sum(after <= before for before, after in itertools.pairwise(tokens))
        return Outcome(overlaps(beliefs), counts + Counter(beliefs=len(beliefs)), stale)

    def wait_for_grants(self, file: Path, more: int) -> None:
        """Return when so many more were granted."""
        known = file.read_bytes().count(b"start")
        poll(lambda: file.read_bytes().count(b"start") >= known + more, timeout=RECOVERY, what="grants")


class Alone(Arena):
    """One Redis."""

    args: tuple[str, ...] = ()

    def build(self) -> None:
        self.servers = self._ends.enter_context(Group([RedisServer(*self.args)])).servers
        self.proxies = [self._ends.enter_context(Proxy(server.url)) for server in self.servers]


class AloneWithAof(Alone):
    """One Redis that writes every command to its disk."""

    args = ("--appendonly", "yes", "--appendfsync", "always")


class Five(Arena):
    """Five independent nodes."""

    backend = RedlockBackend
    args: tuple[str, ...] = ()

    def build(self) -> None:
        self.servers = self._ends.enter_context(Group([RedisServer(*self.args) for _ in range(5)])).servers
        self.proxies = [self._ends.enter_context(Proxy(server.url)) for server in self.servers]

    def locations(self, client: int) -> Any:
        return [proxy.url for proxy in self.proxies]


class FiveWithAof(Five):
    """Five that write every command to their disks."""

    args = AloneWithAof.args


class WithReplicas(Arena):
    """A primary with two replicas; each client has a proxy of its own, so that some can stay with an old primary."""

    backend = ReplicaBackend
    options = {**SHORT, "lag": 1, "wait_timeout": 0.15}

    def build(self) -> None:
        self.group = self._ends.enter_context(Replicated(2))
        self.servers = self.group.servers
        self.proxies = [self._ends.enter_context(Proxy(self.group.primary.url)) for _ in range(CLIENTS)]

    def locations(self, client: int) -> Any:
        return self.proxies[client].url

    def lead(self, *clients: int) -> None:
        """Lead these clients (by default all) to the primary of now."""
        for client in clients or range(CLIENTS):
            self.proxies[client].retarget(self.group.primary.url)

    def heal(self) -> None:
        for server in self.servers:
            revive(server)
        group = self.group
        for link in group.links.values():
            link.restore()
        with group.primary.client() as client:
            client.replicaof("NO", "ONE")
            client.flushall()
        for server in self.servers:
            if server is not group.primary:
                group.follow(server)
        for proxy in self.proxies:
            proxy.restore()
        self.lead()


class Asynchronous(WithReplicas):
    """The same for a backend that knows nothing of replicas."""

    backend = RedisBackend
    options = Arena.options


class WithSentinels(Arena):
    """A master with two replicas and three Sentinels that fail over by themselves."""

    backend = ReplicaBackend
    options = WithReplicas.options

    def build(self) -> None:
        self.group = self._ends.enter_context(Sentinel())
        self.servers = self.group.servers

    def locations(self, client: int) -> Any:
        return self.group.url

    def heal(self) -> None:
        self.group.heal()
        with self.group.master.client() as client:
            client.flushall()


@contextlib.contextmanager
def paused(worker: Worker) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end."""
    worker.pause()
    try:
        yield
    finally:
        worker.resume()
