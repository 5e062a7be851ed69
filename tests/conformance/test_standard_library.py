"""CPython's own tests of locks, run on the locks of this package."""

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


def new_lock(backend):
    """A new lock of its own."""
    return backend.lock(f"standard:{secrets.token_hex(6)}")


def new_rlock(backend):
    """A reentrant lock."""
    return backend.rlock(f"standard:{secrets.token_hex(6)}")


def new_condition(backend, lock=None):
    """A condition on a reentrant lock that nothing else uses, or on a lock that exists."""
    return threading.Condition(new_rlock(backend) if lock is None else lock)


def new_semaphore(backend, value=1):
    """A new semaphore."""
    return backend.semaphore(f"standard:{secrets.token_hex(6)}", limit=value)


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


def started(backend):
    """A backend whose background threads already run, because CPython's tests wait until no thread is left."""
    with new_lock(backend):
        pass
    return backend


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


class TestLocMem(lock_tests.LockTests):
    """Their tests on locks in memory."""

    @pytest.fixture(autouse=True)
    def backend(self, unique):
        self.locktype = functools.partial(new_lock, started(LocMemBackend(unique)))


class TestRedis(lock_tests.LockTests):
    """Their tests on locks in a Redis."""

    @pytest.fixture(autouse=True)
    def backend(self, redis_url):
        backend = started(RedisBackend(redis_url, node_timeout=10))
        self.locktype = functools.partial(new_lock, backend)
        yield
        backend.close()


class TestReentrantLocMem(lock_tests.RLockTests):
    """Their tests of reentrant locks on locks in memory."""

    @pytest.fixture(autouse=True)
    def backend(self, unique):
        self.locktype = functools.partial(new_rlock, started(LocMemBackend(unique)))


class TestReentrantRedis(lock_tests.RLockTests):
    """Their tests of reentrant locks on locks in a Redis."""

    @pytest.fixture(autouse=True)
    def backend(self, redis_url):
        backend = started(RedisBackend(redis_url, node_timeout=10))
        self.locktype = functools.partial(new_rlock, backend)
        yield
        backend.close()


def new_writer(backend):
    """The side of a new lock that writes."""
    return backend.rwlock(f"standard:{secrets.token_hex(6)}").write


class Writers(lock_tests.RLockTests):
    """CPython's tests of reentrant locks. The side that writes is a reentrant lock for each thread."""

    test_recursion_count = None  # of a private method


class TestWriterLocMem(Writers):
    """Their tests of reentrant locks on the side of a lock in memory that writes."""

    @pytest.fixture(autouse=True)
    def backend(self, unique):
        self.locktype = functools.partial(new_writer, started(LocMemBackend(unique)))


class TestWriterRedis(Writers):
    """Their tests of reentrant locks on the side of a lock in a Redis that writes."""

    @pytest.fixture(autouse=True)
    def backend(self, redis_url):
        backend = started(RedisBackend(redis_url, node_timeout=10))
        self.locktype = functools.partial(new_writer, backend)
        yield
        backend.close()


class TestConditionLocMem(lock_tests.ConditionTests):
    """Their tests of conditions on locks in memory."""

    @pytest.fixture(autouse=True)
    def backend(self, unique):
        self.condtype = functools.partial(new_condition, started(LocMemBackend(unique)))


class TestConditionRedis(lock_tests.ConditionTests):
    """Their tests of conditions on locks in a Redis."""

    @pytest.fixture(autouse=True)
    def backend(self, redis_url):
        backend = started(RedisBackend(redis_url, node_timeout=10))
        self.condtype = functools.partial(new_condition, backend)
        yield
        backend.close()


@pytest.fixture(scope="module")
def redlock(running):
    """Three nodes, connected."""
    running(RedisServer)  # skips where none is installed
    with Group(RedisServer() for _ in range(3)) as group:
        backend = RedlockBackend([server.url for server in group.servers], node_timeout=20, quarantine=False)
        assert all(row["ok"] for row in backend.health())  # and so connected
        yield started(backend)
        backend.close()


class TestRedlock(lock_tests.LockTests):
    """Their tests on locks of a majority."""

    @pytest.fixture(autouse=True)
    def backend(self, redlock):
        self.locktype = functools.partial(new_lock, redlock)


class TestConditionOfAWriter(lock_tests.ConditionTests):
    """Their tests of conditions on the side of a lock that writes."""

    @pytest.fixture(autouse=True)
    def backend(self, unique):
        backend = started(LocMemBackend(unique))
        self.condtype = lambda lock=None: threading.Condition(new_writer(backend) if lock is None else lock)


class TestSemaphoreLocMem(Semaphores):
    """Their tests of semaphores on permits in memory."""

    @pytest.fixture(autouse=True)
    def backend(self, unique):
        self.semtype = functools.partial(new_semaphore, started(LocMemBackend(unique)))


class TestSemaphoreRedis(Semaphores):
    """Their tests of semaphores on permits in a Redis."""

    @pytest.fixture(autouse=True)
    def backend(self, redis_url):
        backend = started(RedisBackend(redis_url, node_timeout=10))
        self.semtype = functools.partial(new_semaphore, backend)
        yield
        backend.close()


class TestSemaphoreRedlock(Semaphores):
    """Their tests of semaphores on permits of a majority."""

    # Callers that don't wait and split the votes are all refused, though a permit is free.
    test_try_acquire_contended = None

    @pytest.fixture(autouse=True)
    def backend(self, redlock):
        self.semtype = functools.partial(new_semaphore, redlock)


del Semaphores, Writers  # pytest would collect them, too
