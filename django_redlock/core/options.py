"""The options of one lock."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from .events import LockHandle
from .values import Seconds

OnLost = Literal["raise", "warn"] | Callable[[LockHandle], Any]


class LockOptions(NamedTuple):
    """The options of one lock; times are seconds, ``None`` means "no limit"."""

    ttl: float
    blocking: bool = True
    blocking_timeout: float | None = None
    auto_renew: bool = True
    max_hold: float | None = None
    min_hold: float = 0.0
    fencing: bool = False
    owner: str | Mapping[str, Any] | None = None
    on_lost: OnLost = "raise"


def wait_seconds(blocking: bool, timeout: Seconds) -> float:
    """Seconds that ``acquire(blocking, timeout)`` may wait; arguments and errors of ``threading.Lock.acquire``."""
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds or a timedelta, not {timeout!r}")
    timeout = float(timeout)
    if math.isnan(timeout):
        raise ValueError("Invalid value NaN (not a number)")
    if not blocking:
        if timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        return 0.0
    if timeout == -1:
        return float("inf")
    if abs(timeout) > threading.TIMEOUT_MAX:
        raise OverflowError("timeout value is too large")
    if timeout < 0:
        raise ValueError("timeout value must be a non-negative number")
    return timeout
