"""What the cases of the suite stand on: two users of one store, threads, and forked children."""

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
from ....errors import LockNotSupported
from .clients import TEST_TIMEOUT, AsyncClient, Client, SyncClient

NewBackend = Callable[..., Backend]
NewClient = Callable[..., Client]
Spawn = Callable[..., "Future[Any]"]
Case = TypeVar("Case", bound=Callable[..., Any])

PROCESSES = "processes"  # the feature of a store that several processes can reach


def needs(*features: str) -> Callable[[Case], Case]:
    """Mark a case that is not collected for a store which lacks all of these features."""

    def mark(case: Case) -> Case:
        case.features = features  # type: ignore[attr-defined]
        return case

    return mark


class Fixtures:
    """The one thing that a subclass has to give is `new_backend`."""

    short = 0.06  # seconds: waits and leases that end by themselves
    one_process = False  # the store's locks end at the border of the process
    lacks: Collection[str] = ()  # "fair" and the kinds of locks that the store refuses: their cases are not collected
    features: Collection[str] = ()  # of a class of cases: they are not collected for a store which lacks all of these

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        lacks = {*cls.lacks, *([PROCESSES] if cls.one_process else [])}
        for cases in cls.__mro__ if lacks else ():
            for name, case in vars(cases).items():
                needed = vars(cases).get("features"), getattr(case, "features", None)
                if name.startswith("test_") and any(each and lacks.issuperset(each) for each in needed):
                    setattr(cls, name, None)

    @pytest.fixture
    def new_backend(self) -> NewBackend:
        """`new_backend(**options)`: the backend that is tested, a new one on the same store with each call."""
        raise NotImplementedError("give a fixture `new_backend` that returns a function: (**options) -> Backend")

    @pytest.fixture(params=[SyncClient, AsyncClient], ids=["sync", "async"])
    def new_client(self, request: pytest.FixtureRequest, new_backend: NewBackend) -> Iterator[NewClient]:
        """`new_client(**options)`: another user of the store, as another process would be."""
        with contextlib.ExitStack() as ends:

            def make(**options: Any) -> Client:
                client: Client = request.param(new_backend(**options))
                ends.callback(client.close)
                return client

            yield make

    @pytest.fixture
    def client(self, new_client: NewClient) -> Client:
        """A user of the store."""
        return new_client()

    @pytest.fixture
    def other(self, new_client: NewClient) -> Client:
        """Another one."""
        return new_client()

    @pytest.fixture
    def name(self) -> str:
        """A lock's name that nobody else uses."""
        return f"conformance:{secrets.token_hex(6)}"

    @pytest.fixture
    def spawn(self) -> Iterator[Spawn]:
        """`spawn(function, *args)`: run it in a thread; its `result(TEST_TIMEOUT)` is what it returns."""
        pool = ThreadPoolExecutor(16, thread_name_prefix="conformance")
        yield pool.submit
        pool.shutdown(wait=True, cancel_futures=True)


def eventually(condition: Callable[[], Any], timeout: float = TEST_TIMEOUT) -> Any:
    """What `condition` returns as soon as that is true; the last, false, answer after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return answer


def until_someone_waits(client: Client | Backend, name: str, waiters: int = 1) -> None:
    """Return when somebody waits for the lock, or, on a store that can't tell, soon. Either way the case goes on."""
    try:
        eventually(lambda: (held := client.describe(name)) is None or held.waiters >= waiters, 1)
    except LockNotSupported:
        time.sleep(0.05)


def in_child(function: Callable[[], Any]) -> Any:
    """What `function` returns in a forked child, or the error that it raised there."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads: just what is tested
        pid = os.fork()
    if pid == 0:
        with os.fdopen(theirs, "wb") as pipe:
            try:
                answer = function()
            except BaseException as error:  # noqa: BLE001  (told to the parent)
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
