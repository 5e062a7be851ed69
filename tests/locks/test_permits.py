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


METHODS = {
    "lock": lambda backend, **options: backend.lock("x", **options),
    "rlock": lambda backend, **options: backend.rlock("x", **options),
    "semaphore": lambda backend, **options: backend.semaphore("x", limit=2, **options),
    "rwlock": lambda backend, **options: backend.rwlock("x", **options),
    "striped": lambda backend, **options: backend.striped("x", 3, **options),
    "multilock": lambda backend, **options: backend.multilock(["x", "y"], **options),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("option", "hint"),
    [("timeout", r"use ttl \(.*\) or blocking_timeout"), ("expire", "use ttl "), ("max_hol", "use max_hold ")],
)
def test_hints(method, option, hint):
    """An option of redis-py or a mistyped one raises an error with the method and the option that is meant."""
    with pytest.raises(TypeError, match=rf"^{method}\(\) has no option '{option}'; {hint}"):
        METHODS[method](LocMemBackend("hints"), **{option: 5})
