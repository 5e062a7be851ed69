"""Pytest fixtures and functions for the cases of the suite: two clients of one store, threads, and forked children."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import select
import signal
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from ....backends.base import Backend
from ....core.locks import handle, local_queue
from ....core.primitives import base
from ....errors import LockNotSupported
from .clients import TEST_TIMEOUT, AsyncClient, Client, SyncClient

NewBackend = Callable[..., Backend]
NewClient = Callable[..., Client]
Spawn = Callable[..., "Future[Any]"]
Case = TypeVar("Case", bound=Callable[..., Any])

PROCESSES = "processes"  # the feature of a store that several processes can share


def needs(*features: str) -> Callable[[Case], Case]:
    """Return a decorator for a case that needs at least one of ``features``.

    pytest does not collect the case for a store that lacks all of them.
    """

    def mark(case: Case) -> Case:
        case.features = features  # type: ignore[attr-defined]
        return case

    return mark


class Fixtures:
    """Base class of all cases, with their pytest fixtures. A subclass must define the fixture `new_backend`."""

    short = 0.06  # seconds: the shortest waits and leases that end by themselves
    renewable = 3.0  # seconds: leases that are renewed in time, although the machine is busy
    one_process = False  # the store's locks exclude only within one process
    lacks: Collection[str] = ()  # "fair" and the unsupported kinds of locks: their cases are not collected
    features: Collection[str] = ()  # the cases of this class need at least one of these features

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        lacks = {*cls.lacks, *([PROCESSES] if cls.one_process else [])}
        for cases in cls.__mro__ if lacks else ():
            for name, case in vars(cases).items():
                needed = vars(cases).get("features"), getattr(case, "features", None)
                if name.startswith("test_") and any(each and lacks.issuperset(each) for each in needed):
                    setattr(cls, name, None)

    @pytest.fixture(autouse=True)
    def busy_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make waiters poll rarely, so that polling does not hide a lost wake-up.

        Waiters in fair queues poll every two seconds, so that a slow waiter keeps its place. An acquire is retried more
        often than usual, because on a busy machine a lease of `short` seconds may end before its grant arrives.
        """
        monkeypatch.setattr(base, "MAX_BLOCK", 11.0)
        monkeypatch.setattr(base, "MAX_BLOCK_IN_QUEUE", 2.0)
        monkeypatch.setattr(local_queue, "LEADER_CHECK_SECONDS", 11.0)
        monkeypatch.setattr(handle, "_LATE_GRANTS", 9)

    @pytest.fixture
    def new_backend(self) -> NewBackend:
        """`new_backend(**options)` returns a new instance of the tested backend. All instances use the same store."""
        raise NotImplementedError("give a fixture `new_backend` that returns a function: (**options) -> Backend")

    @pytest.fixture(params=[SyncClient, AsyncClient], ids=["sync", "async"])
    def new_client(self, request: pytest.FixtureRequest, new_backend: NewBackend) -> Iterator[NewClient]:
        """`new_client(**options)` returns a client with a new backend. The client acts like another process."""
        with contextlib.ExitStack() as ends:

            def make(**options: Any) -> Client:
                client: Client = request.param(new_backend(**options))
                ends.callback(client.close)
                return client

            yield make

    @pytest.fixture
    def client(self, new_client: NewClient) -> Client:
        """The first client of the store."""
        return new_client()

    @pytest.fixture
    def other(self, new_client: NewClient) -> Client:
        """The second client of the store."""
        return new_client()

    @pytest.fixture
    def name(self) -> str:
        """A lock name that no other test uses."""
        return f"conformance:{secrets.token_hex(6)}"

    @pytest.fixture
    def spawn(self) -> Iterator[Spawn]:
        """`spawn(function, *args)` runs the function in a thread, and returns a future of the function's result."""
        pool = ThreadPoolExecutor(16, thread_name_prefix="conformance")
        yield pool.submit
        pool.shutdown(wait=True, cancel_futures=True)


def eventually(condition: Callable[[], Any], timeout: float = TEST_TIMEOUT) -> Any:
    """Call ``condition`` repeatedly until it returns a true value, up to ``timeout`` seconds.

    Returns the last value, which is false after a timeout.
    """
    deadline = time.monotonic() + timeout
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return answer


def until_someone_waits(client: Client | Backend, name: str, waiters: int = 1) -> None:
    """Wait up to ten seconds until at least ``waiters`` waiters are listed for the lock ``name``, or the lock is free.

    On a store that doesn't list waiters, waits for 0.05 seconds.
    """
    try:
        eventually(lambda: (held := client.describe(name)) is None or held.waiters >= waiters, 10)
    except LockNotSupported:
        time.sleep(0.05)


def in_child(function: Callable[[], Any]) -> Any:
    """Call ``function`` in a forked child process, and return the result, or the exception that it raised.

    Fails if the child sends no result within `TEST_TIMEOUT` seconds.
    """
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the tests fork with threads on purpose
        pid = os.fork()
    if pid == 0:
        with os.fdopen(theirs, "wb") as pipe:
            try:
                answer = function()
            except BaseException as error:  # noqa: BLE001  (sent to the parent)
                answer = error
            pipe.write(pickle.dumps(answer))
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        answered, _, _ = select.select([pipe], [], [], TEST_TIMEOUT)
        if not answered:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert answered, "the child hangs"
        return pickle.loads(pipe.read())  # noqa: S301  (our own child's)
