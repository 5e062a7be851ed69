"""The clock of leases and deadlines."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial


def _clock() -> Callable[[], float]:
    """Return a function that returns monotonic seconds.

    On Linux this clock also counts while the machine is suspended, because the servers end the leases of a suspended
    machine. The result is a ``partial``: freezegun would freeze the clock of a module that refers to
    ``time.monotonic``.
    """
    try:
        time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):  # not Linux; or a sandbox without this clock
        return partial(time.monotonic)
    return partial(time.clock_gettime, time.CLOCK_BOOTTIME)


monotonic = _clock()
