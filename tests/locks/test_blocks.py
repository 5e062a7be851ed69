"""Blocks that may be skipped or end without a lock, and what a handle lists as held."""

import asyncio
import contextlib
import logging
import threading

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.errors import LockLost, LockNotAcquired, LockNotHeld, PermitNotHeld
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.shared_handles import MAKE
from tests.support.locks import new_lock


@pytest.fixture
def backend(unique):
    return LocMemBackend(unique)


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(TEST_TIMEOUT)
    assert not thread.is_alive()


@pytest.mark.parametrize("kind", MAKE)
def test_a_block_that_may_be_skipped(backend, kind):
    """attempt() gives True and holds the lock for the block, or gives False and leaves the holder's lock alone."""
    lock, other = new_lock(kind, backend, "stock"), new_lock(kind, backend, "stock")
    entered = []

    def refused():
        with other.attempt() as acquired:
            entered.append(acquired)

    with lock.attempt() as acquired:
        assert acquired
        in_thread(refused)
        assert lock.owned()
    assert entered == [False]
    assert not lock.locked()


async def test_a_block_that_may_be_skipped_on_a_loop(backend):
    """`async with lock.attempt()` does the same, and waits as long as it is told."""
    lock, other = backend.lock("stock"), backend.lock("stock")
    async with lock.attempt() as acquired:
        async with other.attempt() as again:
            assert (acquired, again) == (True, False)
        waiting = asyncio.create_task(other.attempt(timeout=TEST_TIMEOUT).__aenter__())
        await asyncio.sleep(0)
    assert await waiting
    await other.arelease()


def test_an_attempt_is_no_answer(backend):
    """An attempt that is not entered has no truth value: it would be true, though nothing was acquired."""
    with pytest.raises(TypeError, match="with lock"):
        bool(backend.lock("stock").attempt())


def test_on_lost_is_called_and_raises(backend):
    """With on_lost=("raise", function) the function is called at the loss, and the block raises at its end."""
    called = threading.Event()
    lock = backend.lock("stock", on_lost=("raise", lambda _: called.set()))

    def lose():
        with lock:
            backend.force_release("stock")
            lock.hold.mark_lost("for a test")

    with pytest.raises(LockLost):
        lose()
    assert called.wait(TEST_TIMEOUT)


@pytest.mark.parametrize("on_lost", [("ignore", print), ("raise", "warn"), ("raise",)])
def test_wrong_pairs(backend, on_lost):
    """A pair has a word and a callable."""
    with pytest.raises(ValueError, match="on_lost must be"):
        backend.lock("stock", on_lost=on_lost)


def test_released_inside(backend, caplog):
    """A block whose lock was released inside raises LockNotHeld at its end, or logs it, as on_lost says."""
    with pytest.raises(LockNotHeld), backend.lock("stock") as lock:
        lock.release()
    with caplog.at_level(logging.WARNING, "django_redlock"), backend.lock("stock", on_lost="warn") as lock:
        lock.release()
    assert "is not held by this handle" in caplog.text


def test_an_interrupted_caller_touches_no_other_block(backend):
    """A block that has released early releases nothing at its end, though an interrupted caller shared its handle."""
    armed = threading.Event()

    def interrupt(event):
        if event.kind == "acquired" and armed.is_set():
            armed.clear()
            raise KeyboardInterrupt

    backend.hook = interrupt
    lock = backend.lock("stock", on_lost="warn")

    def interrupted():
        armed.set()
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()

    holds, done = threading.Event(), threading.Event()
    found = []

    def work():
        with lock:
            holds.set()
            done.wait(TEST_TIMEOUT)
            found.append((lock.lost, lock.owned()))

    worker = threading.Thread(target=work)
    with lock:
        lock.release()
        in_thread(interrupted)
        worker.start()
        assert holds.wait(TEST_TIMEOUT)
    assert not backend.lock("stock").acquire(False)
    done.set()
    worker.join(TEST_TIMEOUT)
    assert found == [(False, True)]


def test_a_reentrant_lock_ends_with_its_thread(backend):
    lock = backend.rlock("stock", ttl=0.5)
    in_thread(lock.acquire)
    assert backend.rlock("stock").acquire(timeout=TEST_TIMEOUT)


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
