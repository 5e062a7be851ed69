"""The background threads for leases: a store that hangs, and errors anywhere, do not affect other locks."""

import threading

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.core.background import thread as background_thread
from django_redlock.core.background.work import MAX_REPORTERS, background
from django_redlock.core.primitives.base import MUTEX
from django_redlock.core.process.mutex import state_mutex
from django_redlock.errors import LockUnavailable
from tests.support.service import poll

WAIT = 20
TTL = 6


def are_renewed(*locks):
    """Return whether the locks are renewed, which are due now."""
    leases = [lock.hold.lease for lock in locks]
    with state_mutex:  # so that the renewal finds all of them
        for lock in locks:
            background.schedule(lock.hold, 0.0)
    poll(
        lambda: all(lock.lost or lock.hold.lease is not lease for lock, lease in zip(locks, leases, strict=True)),
        timeout=WAIT,
        what="the renewals",
    )
    return not any(lock.lost for lock in locks)


def threads_of(backend):
    """Return the renewal threads that the locks of ``backend`` use."""
    return [place for place in background._threads if place[0] == id(backend)]


class Hanging(LocMemBackend):
    """A store that does not reply to renewals until `go_on` is set."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.asked, self.go_on = threading.Event(), threading.Event()

    def extend(self, lease, ttl):
        self.asked.set()
        assert self.go_on.wait(WAIT)
        return super().extend(lease, ttl)


class Refusing(LocMemBackend):
    """A store that never answers a release of the lock ``stuck``."""

    def release(self, claim, keep=0.0):
        if claim.name == "stuck":
            raise LockUnavailable("stuck")
        return super().release(claim, keep)


@pytest.fixture(autouse=True)
def again_soon(monkeypatch):
    """Short retry pauses, so that short leases survive a failure."""
    monkeypatch.setattr(background_thread, "SERVE_AGAIN_SECONDS", 0.05)


@pytest.fixture
def hanging(unique):
    backend = Hanging(f"{unique}-hanging")
    yield backend
    backend.go_on.set()


def test_a_store_that_hangs_delays_no_other(hanging, unique):
    """While one store hangs, locks of other stores are renewed, and its own locks are renewed when it replies again."""
    with LocMemBackend(unique).lock("healthy", ttl=TTL) as healthy, hanging.lock("stuck", ttl=30) as stuck:
        first = stuck.hold.lease
        background.schedule(stuck.hold, 0.0)
        assert hanging.asked.wait(WAIT)
        assert are_renewed(healthy)
        hanging.go_on.set()
        poll(lambda: stuck.hold.lease is not first, timeout=WAIT, what="the renewal of the other")


def test_a_release_that_always_fails_delays_no_other(unique):
    """Releases that were left for the next round come first in it."""
    backend = Refusing(unique)
    claims = []
    for name in ("stuck", "other"):
        lock = backend.lock(name, ttl=TTL)
        assert lock.acquire()
        claims.append(lock.hold.lease.claim)
        lock.hold.end()
    with state_mutex:  # so that one round finds both
        for claim in claims:
            background.release_later(backend, MUTEX, claim)
    poll(lambda: not backend.lock("other").locked(), timeout=TTL / 2, what="the release")
    assert backend.lock("stuck").locked()


def test_one_thread_for_all_locks_of_a_store(unique):
    backend = LocMemBackend(unique)
    locks = [backend.lock(f"{number}") for number in range(1000)]
    assert all(lock.acquire(blocking=False) for lock in locks)
    assert len(threads_of(backend)) == 1
    for lock in locks:
        lock.release()


def test_the_thread_ends_when_nothing_is_watched(unique, monkeypatch):
    """The renewal thread ends when there is nothing to renew, and starts again with the next lock."""
    monkeypatch.setattr(background_thread, "IDLE_SECONDS", 0.01)
    backend = LocMemBackend(unique)
    for _ in range(2):
        with backend.lock("stock", ttl=TTL / 3) as lock:
            assert are_renewed(lock)
        poll(lambda: not threads_of(backend), timeout=WAIT, what="its end")


@pytest.mark.parametrize("started", [False, True], ids=["before", "after"])
def test_interrupted_start(unique, monkeypatch, started):
    """If a signal handler raises while the renewal thread starts, the locks of the store are renewed nevertheless."""
    start = threading.Thread.start

    def interrupted(thread):
        if thread.name != "redlock-leases":
            return start(thread)
        monkeypatch.undo()
        if started:
            start(thread)
        raise KeyboardInterrupt

    backends = [LocMemBackend(unique)]
    while threads_of(backends[-1]):  # the thread of an earlier backend with this id still runs
        backends.append(LocMemBackend(unique))
    backend = backends[-1]
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend.lock("interrupted", ttl=TTL).acquire()
    with backend.lock("stock", ttl=TTL) as lock:
        assert are_renewed(lock)


class Failing(LocMemBackend):
    """A store whose renewals raise `error` once."""

    error = None

    def extend(self, lease, ttl):
        if (error := self.error) is not None:
            self.error = None
            raise error
        return super().extend(lease, ttl)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ZeroDivisionError()], ids=repr)
def test_whatever_a_renewal_raises_it_is_repeated(unique, caplog, error):
    """After any error in a renewal, all locks that were due with it are renewed again."""
    backend = Failing(unique)
    with backend.lock("one", ttl=TTL) as one, backend.lock("other", ttl=TTL) as other:
        backend.error = error
        assert are_renewed(one, other)
    assert backend.error is None
    assert "the renewal of locks failed" in caplog.text


def test_many_losses_need_few_threads(unique):
    """While one listener is slow, the losses of many other locks are reported, by four threads at most."""
    slow, reports, reporters = threading.Event(), [], set()

    def on_lost(lock):
        if lock.name == "0":
            assert slow.wait(WAIT)
        reporters.add(threading.current_thread())
        reports.append(lock.name)

    backend = LocMemBackend(unique)
    locks = [backend.lock(str(number), on_lost=on_lost) for number in range(500)]
    for lock in locks:
        lock.acquire()
        lock.hold.mark_lost("for a test")
    poll(lambda: len(reports) == 499, timeout=WAIT, what="the other reports")
    slow.set()
    poll(lambda: len(reports) == 500, timeout=WAIT, what="the slow report")
    assert len([thread for thread in reporters if thread.is_alive()]) <= MAX_REPORTERS
    assert all(thread.name == "redlock-reports" for thread in reporters)
