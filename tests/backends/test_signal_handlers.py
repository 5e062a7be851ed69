"""A signal handler may use locks wherever it interrupts the main thread, also within an acquire or a release."""

import contextlib
import itertools
import re
import sys
import threading
from functools import partial

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.zookeeper import ZooKeeperBackend
from django_redlock.errors import LockNotHeld, LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.harness.fixtures import until_someone_waits


def struck(function, step, handler, within="/django_redlock/"):
    steps, called = itertools.count(), False

    def strike(frame, *_):
        nonlocal called
        code = frame.f_code
        if re.search(within, f"{code.co_filename}:{code.co_name}") and next(steps) == step:
            sys.settrace(None)
            called = True
            handler()

    sys.settrace(strike)
    try:
        function()
    finally:
        sys.settrace(None)
    return called


def taken(backend, name):
    """Acquire and release twice, so that late replies to earlier requests are read, too."""
    for _ in range(2):
        lock = backend.lock(name, blocking=False)
        assert lock.acquire()
        lock.release()


@pytest.fixture(params=["redis", "redlock", "zookeeper"])
def backend(request, own_nodes):
    """A backend with open connections."""
    if request.param == "zookeeper":
        hosts = request.getfixturevalue("zookeeper").hosts
        backend = ZooKeeperBackend(hosts, session_timeout=30, connect_timeout=20, node_timeout=5)
    else:
        urls = [server.url for server in own_nodes(3)]
        make, where = (RedlockBackend, urls) if request.param == "redlock" else (RedisBackend, urls[0])
        backend = make(where, node_timeout=5, quarantine=False)
    taken(backend, "first")
    yield backend
    backend.close()


def everywhere(strike):
    """Call ``strike(step)`` in a separate thread for each step, until a step is beyond the end."""
    done = []
    for step in itertools.count():
        thread = threading.Thread(target=lambda step=step: done.append(strike(step)), daemon=True)
        thread.start()
        thread.join(TEST_TIMEOUT)
        assert len(done) == step + 1, "it waits for itself, or has failed"
        if not done[-1]:
            break
    assert step > 20


def test_a_handler_does_not_deadlock(backend):
    """A signal handler that uses locks anywhere within an acquire or release does not deadlock."""
    everywhere(lambda step: struck(partial(taken, backend, "mine"), step, partial(taken, backend, "the handler's")))


@pytest.mark.parametrize("backend", ["zookeeper"], indirect=True)
def test_while_it_connects(backend):
    """A signal handler that uses locks while a session is opened may get LockUnavailable, and does not deadlock."""

    def handler():
        with contextlib.suppress(LockUnavailable):
            taken(backend, "the handler's")

    def strike(step):
        backend.close()
        return struck(partial(taken, backend, "mine"), step, handler)

    everywhere(strike)


class TestInMemory:
    """In memory, the lock of a signal handler may be refused with LockUnavailable."""

    def test_handler_and_interrupted_code_exclude_each_other(self, unique):
        backend = LocMemBackend(unique)

        def strike(step):
            mine, other = backend.lock(f"{step}"), backend.lock(f"{step}")
            told = []

            def handler():
                try:
                    told.append(other.acquire(False))
                except LockUnavailable:
                    told.append(False)

            hit = struck(lambda: told.append(mine.acquire(False)), step, handler)
            assert told.count(True) == 1
            return hit

        everywhere(strike)

    @pytest.mark.parametrize("fair", [False, True], ids=["unfair", "fair"])
    def test_handler_releases_what_is_waited_for(self, unique, fair):
        """A lock that a signal handler releases is granted to the waiter that it interrupted, at any step."""
        backend = LocMemBackend(unique)

        def strike(step):
            name = f"{step}"
            held, mine = backend.lock(name, fair=fair), backend.lock(name, fair=fair)
            assert held.acquire(False)

            def free():
                with contextlib.suppress(LockUnavailable, LockNotHeld):
                    held.release()

            def free_at_last():
                until_someone_waits(backend, name)
                free()

            threading.Thread(target=free_at_last, daemon=True).start()
            got = []
            hit = struck(
                lambda: got.append(mine.acquire(timeout=TEST_TIMEOUT)), step, free, "/django_redlock/|/threading"
            )
            assert got == [True]
            mine.release()  # ends the thread above
            return hit

        everywhere(strike)
