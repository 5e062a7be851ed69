"""Signal handlers that raise anywhere, as Ctrl-C and Celery's soft time limit do."""

import itertools
import threading

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.interrupts import interrupted


def test_anywhere_in_release(unique):
    """After an interrupt anywhere in release(), the handle still holds the lock, or the lock is free soon."""
    backend = LocMemBackend(unique)
    for step in itertools.count():
        lock = backend.lock(f"mine:{step}")
        lock.acquire()
        if not interrupted(lock.release, step):
            break
        if lock.token is not None:
            lock.release()
        assert backend.lock(lock.name).acquire(timeout=TEST_TIMEOUT), f"at step {step}"
    assert step > 20


def test_anywhere_in_acquire(unique):
    """After an interrupt anywhere in acquire(), other handles can acquire and release their locks."""
    backend = LocMemBackend(unique)

    def another():
        with backend.lock("another"):
            pass

    for step in itertools.count():
        if not interrupted(backend.lock(f"mine:{step}").acquire, step):
            break
        thread = threading.Thread(target=another, daemon=True)
        thread.start()
        thread.join(TEST_TIMEOUT)
        assert not thread.is_alive()
    assert step > 20
