"""Interrupts at any place, as from a signal handler that raises: Ctrl-C, Celery's soft time limit."""

import gc
import inspect
import itertools
import re
import sys


def anywhere(within="", least=5):
    """Yield `interrupt` more than ``least`` times.

    `interrupt(function)` calls the function, interrupts it one step later than before, and returns the number of the
    step. A step is the begin or end of a function whose file and name match the pattern ``within``. The last call is
    not interrupted.
    """
    for step in itertools.count():
        struck = []

        def interrupt(function, step=step, struck=struck):
            struck.append(_interrupted(function, step, within))
            return step

        yield interrupt
        if not any(struck):
            break
    assert step > least


def _interrupted(function, step, within):
    """Return whether ``function()`` was interrupted at this step."""
    steps = itertools.count()

    def strike(frame, event, _):
        frame.f_trace_lines = False  # handlers of signals are not run between any two lines
        if event == "return" and frame.f_code.co_flags & inspect.CO_GENERATOR:
            return strike  # nor at a `yield`
        if event == "return" and frame.f_code.co_qualname == "SignalSafeRLock.__enter__":
            return strike  # nor between an `__enter__` in Python and its block
        if not re.search(within, f"{frame.f_code.co_filename}:{frame.f_code.co_name}"):
            return strike
        if next(steps) == step:
            raise KeyboardInterrupt
        return strike

    before = sys.gettrace()
    gc.disable()  # or it would strike in the `__del__` of what others have left
    sys.settrace(strike)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False
