"""CPython's own tests of locks, run on the locks of this package."""

import contextlib
import functools
import secrets
import threading
import time

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from testproject.redis_server import RedisServer
from tests.support.group import Group

try:
    from test import lock_tests
except ImportError:  # distributions put it into a package of its own, or leave it out
    pytest.skip("Python's own test suite is not installed (the package `test`)", allow_module_level=True)


def new_name():
    return f"standard:{secrets.token_hex(6)}"


MAKE = {
    "lock": lambda backend: backend.lock(new_name()),
    "rlock": lambda backend: backend.rlock(new_name()),
    "writer": lambda backend: backend.rwlock(new_name()).write,
    "semaphore": lambda backend, value=1: backend.semaphore(new_name(), limit=value),
    "condition": lambda backend, lock=None: threading.Condition(backend.rlock(new_name()) if lock is None else lock),
    "writer's condition": lambda backend, lock=None: threading.Condition(
        backend.rwlock(new_name()).write if lock is None else lock
    ),
}


class Semaphores(lock_tests.BoundedSemaphoreTests):
    """CPython's tests of bounded semaphores. Our handles don't know how many permits others hold."""

    def test_repr(self):
        """The repr shows how many permits this handle holds."""
        sem = self.semtype(3)
        assert "0 held" in repr(sem)
        sem.acquire()
        assert "1 held" in repr(sem)
        sem.release()

    def test_acquire_timeout(self):
        """As CPython's test, without waits of 5 ms, which are too short for a store."""
        sem = self.semtype(2)
        with pytest.raises(ValueError, match="timeout"):
            sem.acquire(False, timeout=1.0)
        assert sem.acquire(timeout=5)
        assert sem.acquire(timeout=5)
        assert not sem.acquire(timeout=0.2)
        sem.release()
        assert sem.acquire(timeout=5)
        start = time.monotonic()
        assert not sem.acquire(timeout=0.5)
        self.assertTimeout(time.monotonic() - start, 0.5)


class Writers(lock_tests.RLockTests):
    """CPython's tests of reentrant locks. The side that writes is a reentrant lock for each thread."""

    test_recursion_count = None  # of a private method


class QuorumSemaphores(Semaphores):
    """Callers that don't wait and split the votes are all refused, though a permit is free."""

    test_try_acquire_contended = None


def not_before(_test, actual, expected):
    assert actual >= expected * 0.6


@pytest.fixture(scope="module", autouse=True)
def uncounted_threads():
    """Do not count renewal threads, which end only when they have been idle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock_tests.threading_helper, "threading_cleanup", lambda *_counts: None)
        # Theirs also demands an end within a second, which a busy machine may miss.
        patch.setattr(lock_tests.BaseTestCase, "assertTimeout", not_before)
        yield


@pytest.fixture(scope="module")
def locmem():
    return LocMemBackend(new_name())


@pytest.fixture
def redis(redis_url):
    with contextlib.closing(RedisBackend(redis_url, node_timeout=10)) as backend:
        yield backend


@pytest.fixture(scope="module")
def redlock(running):
    """Three nodes, connected."""
    running(RedisServer)  # skips where none is installed
    with Group(RedisServer() for _ in range(3)) as group:
        backend = RedlockBackend([server.url for server in group.servers], node_timeout=20, quarantine=False)
        assert all(row["ok"] for row in backend.health())  # and so connected
        yield backend
        backend.close()


def cases(tests, member, kind, store):
    """Return CPython's ``tests`` for the locks of a kind on a backend, a fixture."""

    class Cases(tests):
        @pytest.fixture(autouse=True)
        def on_backend(self, request):
            backend = request.getfixturevalue(store)
            with backend.lock(new_name()):  # starts background threads: their tests wait until no thread is left
                pass
            setattr(self, member, functools.partial(MAKE[kind], backend))

    return Cases


TestLocMem = cases(lock_tests.LockTests, "locktype", "lock", "locmem")
TestRedis = cases(lock_tests.LockTests, "locktype", "lock", "redis")
TestRedlock = cases(lock_tests.LockTests, "locktype", "lock", "redlock")
TestReentrantLocMem = cases(lock_tests.RLockTests, "locktype", "rlock", "locmem")
TestReentrantRedis = cases(lock_tests.RLockTests, "locktype", "rlock", "redis")
TestWriterLocMem = cases(Writers, "locktype", "writer", "locmem")
TestWriterRedis = cases(Writers, "locktype", "writer", "redis")
TestConditionLocMem = cases(lock_tests.ConditionTests, "condtype", "condition", "locmem")
TestConditionRedis = cases(lock_tests.ConditionTests, "condtype", "condition", "redis")
TestConditionOfAWriter = cases(lock_tests.ConditionTests, "condtype", "writer's condition", "locmem")
TestSemaphoreLocMem = cases(Semaphores, "semtype", "semaphore", "locmem")
TestSemaphoreRedis = cases(Semaphores, "semtype", "semaphore", "redis")
TestSemaphoreRedlock = cases(QuorumSemaphores, "semtype", "semaphore", "redlock")
del Semaphores, QuorumSemaphores, Writers  # pytest would collect them, too
