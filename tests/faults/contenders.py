"""Client processes that fight for one lock and record the periods in which they believe to hold it."""

import contextlib
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, NamedTuple

from django_redlock.core.events import Event
from django_redlock.core.locks.lock import Lock
from django_redlock.errors import LockLost, LockNotHeld, LockUnavailable
from django_redlock.testing.conformance.harness.clients import AsyncClient, Client, SyncClient
from tests.support.overlap import believing
from tests.support.processes import Channel

LANES = 3  # contenders in each process, which share its connections and its waiter
STEP = 0.01  # seconds between two checks of a held lock
HOLDS = (0.0, 0.0, 0.005, 0.02, 0.2, 0.6)  # seconds
PATIENCE = (0.0, 0.05, 0.5)  # seconds to wait for the lock
MOST = 100  # failures of each lane that are reported
PAUSE = (0.01, 0.05)  # seconds to pause after a failure of the store; up to four times as long after several failures


class Job(NamedTuple):
    """The parameters of one client in a fight. `file`: the file for its beliefs."""

    backend: str
    location: Any
    options: dict[str, Any]
    file: str
    worker: str
    seed: int
    in_asyncio: bool = False
    forks: bool = False
    stretch: float = 1.0  # factor for the times for which the lock is held


class Failure(NamedTuple):
    """A period in which the store could not be reached (monotonic seconds), and the error."""

    start: float
    end: float
    error: str


class Lane:
    """One contender in a client process, with its random numbers, counts and failures."""

    def __init__(self, job: Job, number: int) -> None:
        self.number = number
        self.rng = random.Random(f"{job.seed} {job.worker} {number}")
        self.counts = Counter[str]()
        self.failures: list[Failure] = []
        self._in_a_row = 0

    def lock(self, client: Client) -> Any:
        """Returns a handle of the contested lock. Without a fencing token the lock may be handed over locally."""
        return client.lock("stock", fencing=self.rng.random() < 0.5)

    def note(self, granted: bool) -> bool:
        """Count an answer of the store. Returns `granted`."""
        self._in_a_row = 0
        self.counts["granted" if granted else "refused"] += 1
        return granted

    def failed(self, start: float, error: Exception) -> float:
        """Record a failure of the store. Returns the seconds to pause."""
        self.counts["unavailable"] += 1
        if len(self.failures) < MOST:
            self.failures.append(Failure(start, time.monotonic(), str(error)))
        self._in_a_row = min(self._in_a_row + 1, 4)
        return self._in_a_row * self.rng.uniform(*PAUSE)


def contend(channel: Channel) -> None:
    """Fight on command until told to stop, then report counts and failures."""
    logging.getLogger("django_redlock").addHandler(logging.NullHandler())  # lost leases are expected here
    while True:
        job = Job(**channel.hear("fight", timeout=600))
        module, _, name = job.backend.rpartition(".")
        backend = getattr(import_module(module), name)(job.location, **job.options)
        backend.hook = _note_loss
        client = (AsyncClient if job.in_asyncio else SyncClient)(backend)
        lanes = [Lane(job, number) for number in range(LANES)]
        _threads(channel, client, job, lanes)
        client.close()
        counts = sum((lane.counts for lane in lanes), Counter[str]())
        channel.say("stopped", counts=counts, failures=[each for lane in lanes for each in lane.failures])


def _note_loss(event: Event) -> None:
    """Store the time at which the lease was lost, because the lock is released right afterwards."""
    if event.kind == "lost":
        event.lock.lost_at = time.monotonic()


def _threads(channel: Channel, client: Client, job: Job, lanes: list[Lane]) -> None:
    over = threading.Event()
    client.health()  # connects to every node
    with ThreadPoolExecutor(LANES) as pool:
        fights = [pool.submit(_fight, client, job, lane, over) for lane in lanes]
        try:
            channel.hear("stop", timeout=1200)
        finally:
            over.set()
        for fight in fights:
            fight.result()


def _fight(client: Client, job: Job, lane: Lane, over: threading.Event) -> None:
    rng = lane.rng
    while not over.is_set():
        lock, start = lane.lock(client), time.monotonic()
        try:
            if not lane.note(lock.acquire(timeout=rng.choice(PATIENCE))):
                continue
        except LockUnavailable as error:
            over.wait(lane.failed(start, error))
            continue
        with _belief(lock, job, lane.number) as look:
            if job.forks and not job.in_asyncio and lane.number == 0 and rng.random() < 0.2:
                _fork(lock, client.backend, job, lane.counts)
            end = time.monotonic() + job.stretch * rng.choice(HOLDS)
            while look() and time.monotonic() < end and not over.is_set():
                time.sleep(STEP)
        with _counting(lane.counts):
            lock.release()


@contextlib.contextmanager
def _belief(lock: Lock, job: Job, lane: int) -> Iterator[Any]:
    """Record the belief of one grant. Yields a function that checks whether the belief continues."""
    hold = lock.hold
    lease = hold.lease
    if hold.lost:  # acquire() returned so late that the lease has ended
        yield lambda: False
        return
    with believing(job.file, "stock", f"{job.worker}.{lane}#{lease.fencing_token}", lease.valid_until) as believe:

        def look() -> bool:
            if hold._lost:  # the loss was noticed
                believe(min(lease.valid_until, getattr(lock, "lost_at", time.monotonic())))
                return False
            believe(hold.lease.valid_until)
            return not hold.lost

        yield look
        look()


@contextlib.contextmanager
def _counting(counts: Counter[str]) -> Iterator[None]:
    try:
        yield
    except LockLost:
        counts["lost"] += 1
    except LockUnavailable:
        counts["not released"] += 1


def _fork(lock: Lock, backend: Any, job: Job, counts: Counter[str]) -> None:
    """Fork a child that tries to release its parent's lock, and then fights for the lock with its own connections."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            try:
                lock.release()
            except LockNotHeld:
                code = 0
            child = job._replace(worker=f"{job.worker}+{os.getpid()}")
            own = backend.lock("stock", fencing=True)
            with contextlib.suppress(LockUnavailable):
                if own.acquire(timeout=0.05):
                    with _belief(own, child, 0) as look:
                        look()
                        time.sleep(STEP)
                    with _counting(Counter()):
                        own.release()
        except BaseException:  # noqa: BLE001  (told by the exit code)
            code = 2
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, f"a forked child {'could free the lock of its parent' if code == 1 else 'failed'}"
    counts["forked"] += 1
