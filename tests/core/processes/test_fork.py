"""Forks at unfavourable moments. The conformance suite tests other forks."""

import os
import threading
import time

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.core.background.work import background
from django_redlock.core.process import fork
from django_redlock.errors import LockNotHeld
from django_redlock.history.event_queue import EventRecord, event_queue
from django_redlock.testing.conformance.harness.fixtures import in_child

WAIT = 20
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


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


class Work:
    """Holds a mutex until a fork has begun, and a moment longer."""

    def __init__(self):
        self.mutex, self.begun, self.forking = threading.Lock(), threading.Event(), threading.Event()

    def __call__(self, *_args):
        with self.mutex:
            self.begun.set()
            self.forking.wait(WAIT)


_works: list[Work] = []
# Such functions are called in the reverse order: this one before ours, which waits.
os.register_at_fork(before=lambda: [work.forking.set() for work in _works])


@pytest.fixture
def work():
    work = Work()
    _works.append(work)
    yield work
    work.forking.set()
    _works.remove(work)


class Slow(LocMemBackend):
    """Does the work when a lock is renewed or released."""

    work = None

    def extend(self, lease, ttl):
        self.work()
        return super().extend(lease, ttl)

    def release(self, claim, keep=0.0):
        if threading.current_thread().name == "redlock-leases":
            self.work()
        return super().release(claim, keep)


def renews(work, unique):
    backend = Slow(unique)
    backend.work = work
    return backend.lock("stock", ttl=60)


def frees(work, unique):
    lock = renews(work, unique)
    lock.acquire()
    hold = lock.hold
    hold.end()
    hold.release_later()
    return lock


def tells_of_a_loss(work, unique):
    lock = LocMemBackend(unique).lock("stock", on_lost=work)
    lock.acquire()
    background.mark_lost(lock.hold.lease.claim.token, "for a test")
    return lock


def watches(work, _unique):
    event_queue.subscribe("test", lambda _records: work())
    event_queue.record(EventRecord(time.time(), "acquired", "stock"))


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr("django_redlock.history.event_queue.INTERVAL", 0.01)
    yield
    event_queue.unsubscribe("test")


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("begin", [renews, frees, tells_of_a_loss, watches])
def test_a_fork_waits_for(begin, work, unique, monkeypatch):
    """A fork waits until a background thread has finished its current step."""
    monkeypatch.setattr(fork, "FORK_TIMEOUT", WAIT)
    lock = begin(work, unique)
    if begin is renews:
        lock.acquire()
        background.schedule(lock.hold, 0.0)
    assert work.begun.wait(WAIT)
    assert in_child(work.mutex.locked) is False


def test_a_fork_does_not_wait_for_ever(monkeypatch):
    """A thread that is blocked by a store delays a fork for FORK_TIMEOUT at most."""
    monkeypatch.setattr(fork, "FORK_TIMEOUT", 0.05)
    begun, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=fork.run_postponing, args=(lambda: (begun.set(), go_on.wait(WAIT)),))
    thread.start()
    assert begun.wait(WAIT)
    assert in_child(lambda: "born") == "born"
    assert thread.is_alive()
    go_on.set()
    thread.join(WAIT)


def test_a_thread_of_ours_may_fork():
    """A thread that forks does not wait for its own work, and its child goes on with that work."""
    answers = []
    start = time.monotonic()
    with fork.postponed:
        answers.append(in_child(lambda: fork.run_postponing(answers.append, "child")))
    assert answers == [None]
    assert time.monotonic() - start < WAIT
    assert threading.get_ident() not in fork.postponed._working
