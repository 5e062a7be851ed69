"""Signal handlers that raise anywhere, as Ctrl-C and Celery's soft time limit do."""

import threading

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.interrupts import anywhere


def test_anywhere_in_release(unique):
    """After an interrupt anywhere in release(), the handle still holds the lock, or the lock is free soon."""
    backend = LocMemBackend(unique)
    for interrupt in anywhere(least=20):
        lock = backend.lock("mine")
        lock.acquire(timeout=TEST_TIMEOUT)
        step = interrupt(lock.release)
        if lock.token is not None:
            lock.release()
        following = backend.lock("mine")
        assert following.acquire(timeout=TEST_TIMEOUT), f"at step {step}"
        following.release()


def test_anywhere_in_acquire(unique):
    """After an interrupt anywhere in acquire(), other handles can acquire and release their locks."""
    backend = LocMemBackend(unique)

    def another():
        with backend.lock("another"):
            pass

    for number, interrupt in enumerate(anywhere(least=20)):
        interrupt(backend.lock(f"mine:{number}").acquire)
        thread = threading.Thread(target=another, daemon=True)
        thread.start()
        thread.join(TEST_TIMEOUT)
        assert not thread.is_alive()
