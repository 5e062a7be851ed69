"""Signal handlers that raise, as Ctrl-C does, while the main thread uses a result of kazoo."""

import itertools
import threading

from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.interrupts import interrupted_by

RESULTS = "kazoo/handlers/utils.py"


def interrupted(function, step):
    """Return whether ``function()`` was interrupted at the ``step``-th function of a result or its mutex."""
    steps = itertools.count()

    def strike(frame, _event, _):
        frame.f_trace_lines = False
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        if RESULTS in (frame.f_code.co_filename[-len(RESULTS) :], caller[-len(RESULTS) :]) and next(steps) == step:
            raise KeyboardInterrupt
        return strike

    return interrupted_by(strike, function)


def test_the_session_goes_on(backend):
    """After an interrupt anywhere, the session still serves other threads."""
    granted = []

    def another():
        with backend.lock("another", blocking_timeout=TEST_TIMEOUT):
            granted.append(step)

    with backend.lock("first"):  # opens the session
        pass
    for step in itertools.count():
        if not interrupted(backend.lock(f"mine:{step}").acquire, step):
            break
        thread = threading.Thread(target=another, daemon=True)
        thread.start()
        thread.join(TEST_TIMEOUT)
        assert granted[-1:] == [step]
    assert step > 5
