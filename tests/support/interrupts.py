"""Interrupts at any place, as from a signal handler that raises: Ctrl-C, Celery's soft time limit."""

import gc
import inspect
import itertools
import re
import sys


def interrupted_by(trace, function):
    before = sys.gettrace()
    gc.disable()  # or it would strike in the `__del__` of what others have left
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False


def interrupted(function, step, within=""):
    """Return whether ``function()`` was interrupted at the ``step``-th begin or end of a function within it. Only
    functions count whose file and name match the pattern ``within``.
    """
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

    return interrupted_by(strike, function)
