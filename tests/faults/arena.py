"""The servers and clients of a fight, and the check of its results."""

import contextlib
import itertools
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

from django_redlock.backends.redis import RedisBackend, RedisBaseBackend
from testproject.redis_server import RedisServer
from tests.faults.contenders import Failure, Job, contend
from tests.support.overlap import overlaps, read
from tests.support.processes import ForkedWorker
from tests.support.proxy import Proxy
from tests.support.service import poll, revive

CLIENTS = 3  # processes
SHORT = {"ttl": 0.5, "max_ttl": 0.6, "node_timeout": 0.15}  # seconds
RECOVERY = 60  # seconds within which the lock must be granted again


class Outcome(NamedTuple):
    """The results of a fight: overlapping beliefs, counts of events, and the number of fencing tokens that did not
    grow. ``failures``: the errors of clients that could not reach the store.
    """

    overlaps: list[Any]
    counts: Counter[str]
    stale_tokens: int
    failures: list[Failure]

    @property
    def availability(self) -> float:
        """The share of attempts that the store granted or refused."""
        answered = self.counts["granted"] + self.counts["refused"]
        return answered / (answered + self.counts["unavailable"] or 1)


class Arena:
    """The servers of a store in `servers`, and a proxy for each in `proxies`. A subclass starts the servers."""

    backend: type[RedisBaseBackend] = RedisBackend
    options: dict[str, Any] = {**SHORT, "quarantine": True}

    def __init__(self, *, proxied: bool = True, **options: Any) -> None:
        self.options = {**self.options, **options}
        self.proxied = proxied  # without proxies the clients connect to the servers directly, which is faster
        self.clients: list[ForkedWorker] = []  # those that were killed are replaced
        self.prefix = ""
        self.stretch = 1.0  # factor for the times for which two servers serve as primary, and the lock is held
        self._ends = contextlib.ExitStack()
        self._files = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="fight-")))
        self._numbers = itertools.count()
        self.servers: list[RedisServer] = []
        self.proxies: list[Proxy] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.push(self.__exit__)
            self.build()
            undo.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        for client in self.clients:
            client.__exit__()
        self._ends.close()

    def kill(self, client: ForkedWorker) -> None:
        self.clients.remove(client)
        client.__exit__()

    def build(self) -> None:
        raise NotImplementedError

    def stand_before(self) -> None:
        """Put a proxy in front of each server, if the arena is proxied."""
        if self.proxied:
            self.proxies = [self._ends.enter_context(Proxy(server.url)) for server in self.servers]

    def locations(self, client: int) -> Any:
        return self.urls()[0]

    def urls(self) -> list[str]:
        return [place.url for place in (self.proxies or self.servers)]

    def heal(self) -> None:
        """Restart or resume all servers, end the faults of the network, and delete all data."""
        for proxy in self.proxies:
            proxy.restore()
        for server in self.servers:
            revive(server)
            with server.client() as client:
                client.flushall()

    def store(self, client: int = 0, **options: Any) -> RedisBaseBackend:
        """Returns a backend with the configuration of a client, for the test itself."""
        return self.backend(self.locations(client), **{**self.options, "key_prefix": self.prefix, **options})

    def arm(self) -> None:
        store = self.store(node_timeout=5)
        poll(lambda: set(store.arm().values()) == {"armed"}, timeout=RECOVERY, what="servers in service")
        store.close()

    def fight(self, fault: Callable[[Self, random.Random], None], seed: int, *, forks: bool = False) -> Outcome:
        """Run one fight with the fault in the middle. The lock must be granted before the fault and again after it."""
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
                stretch=self.stretch,
            )
            for client in range(CLIENTS)
        ]
        while len(self.clients) < len(jobs):
            self.clients.append(ForkedWorker(contend))
        for client, job in zip(self.clients, jobs, strict=True):
            client.tell("fight", **job._asdict())
        try:
            self.wait_for_grants(file, 3)
            time.sleep(rng.uniform(0, 0.3))
            fault(self, rng)
            self.wait_for_grants(file, 3)
            time.sleep(rng.uniform(0, 0.2))
        except TimeoutError as error:
            raise TimeoutError(f"{error}; meanwhile {self._stop()}") from error
        counts, failures = self._stop()
        beliefs = read(file)
        tokens = [int(number) for belief in beliefs if (number := belief.worker.partition("#")[2]) != "None"]
        stale = sum(after <= before for before, after in itertools.pairwise(tokens))
        return Outcome(overlaps(beliefs), counts + Counter(beliefs=len(beliefs)), stale, failures)

    def _stop(self) -> tuple[Counter[str], list[Failure]]:
        """Stop the fight. Returns what the clients report."""
        for client in self.clients:
            with contextlib.suppress(BrokenPipeError):  # it has failed: expect() raises its error
                client.tell("stop")
        reports = [client.expect("stopped", 120) for client in self.clients]
        counts = sum((each["counts"] for each in reports), Counter[str]())
        return counts, [failure for each in reports for failure in each["failures"]]

    def wait_for_grants(self, file: Path, more: int) -> None:
        known = file.read_bytes().count(b"start")
        poll(lambda: file.read_bytes().count(b"start") >= known + more, timeout=RECOVERY, what="grants")
