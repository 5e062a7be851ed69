"""A loss is noticed or reported late, when the handle has another lease."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.core.renewal.registry import renewal
from django_redlock.errors import LockLost
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT


@pytest.fixture
def report(monkeypatch):
    """`report()`: report the loss of a lease, which is not reported before."""
    held_back = []
    monkeypatch.setattr(renewal, "report", held_back.append)

    def report():
        held_back.pop()()

    return report


def test_each_loss_is_reported_once(backend, unique, report):
    """on_lost is called once for each lost lease, and not for a lease that is held."""
    calls = []
    lock = backend.lock(unique, ttl=60, on_lost=lambda lock: calls.append((lock.token, lock.lost)))
    assert lock.acquire()
    lock.hold.mark_lost("for a test")
    with pytest.raises(LockLost):
        lock.release()
    assert calls == [(None, True)]
    assert lock.acquire(timeout=TEST_TIMEOUT)
    report()
    assert calls == [(None, True)]
    lock.hold.mark_lost("for a test")
    report()
    assert calls == [(None, True), (lock.token, True)]
    with pytest.raises(LockLost):
        lock.release()
    assert len(calls) == 2


def test_a_loss_that_was_not_reported_yet(backend, unique, report):
    """A lost lease that another has replaced is reported, and the loss of the other is, too."""
    calls = []
    lock = backend.lock(unique, ttl=60, on_lost=lambda _: calls.append(1))
    assert lock.acquire()
    lock.hold.mark_lost("for a test")
    assert lock.acquire(timeout=TEST_TIMEOUT)
    report()
    assert len(calls) == 1
    lock.hold.mark_lost("for a test")
    report()
    assert len(calls) == 2


def test_a_late_reply_to_a_release(backend, unique, monkeypatch):
    """A release that notices the loss of its lease does not mark the handle's next lease as lost."""
    lock = backend.lock(unique, ttl=60, auto_renew=False)
    assert lock.acquire()
    backend.force_release(unique)
    perform, replied, go_on = backend.perform, threading.Event(), threading.Event()

    def slow(request):
        reply = perform(request)
        replied.set()
        assert go_on.wait(TEST_TIMEOUT)
        return reply

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(backend, "perform", slow)
        releasing = pool.submit(lock.release)
        assert replied.wait(TEST_TIMEOUT)
        monkeypatch.setattr(backend, "perform", perform)
        assert lock.acquire(blocking=False)
        go_on.set()
        assert isinstance(releasing.exception(TEST_TIMEOUT), LockLost)
    lock.check()
    lock.release()
