"""Permits and stripes that a handle lists, and those that it holds."""

import contextlib

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.errors import LockNotAcquired, PermitNotHeld


@pytest.fixture(params=["semaphore", "striped"])
def handle(request, unique):
    """A handle for up to two permits."""
    backend = LocMemBackend(unique)
    return backend.semaphore(unique, limit=2) if request.param == "semaphore" else backend.striped(unique, 2)


def test_exit_without_a_block(handle):
    """`ExitStack.push()` ends an acquisition that began with acquire(), as for `threading.Semaphore`."""
    assert handle.acquire(False)
    assert handle.acquire(False)
    with contextlib.ExitStack() as stack:
        stack.push(handle)
    assert len(handle.holds) == 1
    handle.release()
    with pytest.raises(PermitNotHeld):
        handle.__exit__(None, None, None)


def test_failed_switches(unique):
    """A handle does not collect the permits of failed switches, and then releases only what it holds."""
    backend = LocMemBackend(unique)
    handle, other = (backend.striped(unique, 2, blocking=False) for _ in range(2))
    for _ in range(3):
        handle.acquire()
        other.acquire()
        with pytest.raises(LockNotAcquired):
            handle.switch()
        other.release()
    handle.acquire()
    assert len(handle.holds) == 1
    handle.release()
    with pytest.raises(PermitNotHeld):
        handle.release()
