"""Forks at unfavourable moments. The conformance suite tests other forks."""

import os
import threading
import time

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.errors import LockNotHeld
from django_redlock.testing.conformance.harness.fixtures import in_child

WAIT = 10


class HeldUp:
    """A clock that, once armed, blocks its callers."""

    def __init__(self):
        self.armed = False
        self.asked, self.go_on = threading.Event(), threading.Event()

    def __call__(self):
        if self.armed:
            self.asked.set()
            self.go_on.wait(WAIT)
        return time.monotonic()


@pytest.fixture
def held_up():
    clock = HeldUp()
    yield clock
    clock.armed = False
    clock.go_on.set()


def test_fork_while_another_thread_is_at_the_handle(held_up, unique):
    """A child can use a handle that another thread of its parent was using at the time of the fork."""
    lock = LocMemBackend(unique, clock=held_up).lock(unique)
    lock.acquire()
    held_up.armed = True
    releasing = threading.Thread(target=lock.release)
    releasing.start()
    assert held_up.asked.wait(WAIT)

    def child():
        held_up.armed = False
        with lock:
            return lock.token is not None

    assert in_child(child) is True
    held_up.go_on.set()
    releasing.join(WAIT)
    assert lock.token is None


def test_at_fork_reinit_in_a_child(unique):
    """`_at_fork_reinit`, as for a threading.Lock, does not release the parent's lock in a child."""
    lock = LocMemBackend(unique).lock(unique)
    lock.acquire()

    def child():
        lock._at_fork_reinit()
        with pytest.raises(LockNotHeld):
            lock.release()
        return lock.acquire(False), os.getpid()

    acquired, pid = in_child(child)
    assert acquired
    assert pid != os.getpid()
    lock.check()
    lock.release()


def test_at_fork_reinit_in_the_holder(unique):
    """In the process that holds the lock, `_at_fork_reinit` releases it."""
    lock = LocMemBackend(unique).lock(unique)
    lock.acquire()
    lock._at_fork_reinit()
    assert lock.token is None
    assert lock.acquire(timeout=WAIT)
    lock.release()
