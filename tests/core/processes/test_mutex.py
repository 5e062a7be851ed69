"""The mutex that protects what threads share."""

import signal
import threading

import pytest

from django_redlock.core.process.mutex import SignalSafeRLock, new_mutex
from django_redlock.testing.conformance.harness.fixtures import in_child

# Python 3.11.2, as in Debian 12, has no such method. `SignalSafeRLock` is for Python 3.14.
needs_recursion_count = pytest.mark.skipif(
    not hasattr(SignalSafeRLock, "_recursion_count"), reason="this Python's RLock has no _recursion_count"
)
PERIOD = 0.0005  # seconds between two signals
INTERRUPTS = 100


class Interrupt(Exception):
    """What the signal handler raises."""


@pytest.fixture
def signals():
    """A handler of SIGALRM that raises `Interrupt`."""

    def handler(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@needs_recursion_count
def test_interrupted_before_the_acquisition(signals):
    """An exception while another thread holds the mutex releases nothing."""
    mutex, locked, done = SignalSafeRLock(), threading.Event(), threading.Event()

    def hold():
        with mutex:
            locked.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait()
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(Interrupt), mutex:
        pass
    assert mutex._recursion_count() == 0
    done.set()
    holder.join()
    assert mutex.acquire(blocking=False)


@pytest.mark.parametrize("new", [new_mutex, pytest.param(SignalSafeRLock, marks=needs_recursion_count)])
@pytest.mark.parametrize("depth", [0, 1])
def test_interrupted_anywhere(signals, new, depth):
    """An exception anywhere in a `with` statement releases what it has acquired, and no more."""
    mutex, interrupts = new(), 0
    for _ in range(depth):
        mutex.acquire()

    def work():
        signal.setitimer(signal.ITIMER_REAL, PERIOD)
        while True:
            with mutex:
                pass

    while interrupts < INTERRUPTS:
        with pytest.raises(Interrupt):
            work()
        interrupts += 1
    for _ in range(depth):
        mutex.release()
    assert not mutex._is_owned()


def test_mutex_of_another_thread_is_free_in_a_child():
    other, own, held, over = new_mutex(), new_mutex(), threading.Event(), threading.Event()

    def hold():
        with other:
            held.set()
            over.wait(20)

    def child():
        taken = other.acquire(timeout=0)
        own.release()
        return taken

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(20)
    try:
        with own:
            assert in_child(child)
    finally:
        over.set()
        thread.join()
