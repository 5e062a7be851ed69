"""The options of one lock."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from inspect import iscoroutinefunction
from typing import Any, Literal, NamedTuple, TypedDict

from .values import Seconds

OnLostCallback = Callable[[Any], Any]  # gets the lock
OnLost = Literal["raise", "warn"] | OnLostCallback | tuple[Literal["raise", "warn"], OnLostCallback]


class LockOptions(NamedTuple):
    """The options of one lock, as ``Backend.lock`` describes them. Times are seconds.

    ``blocking_timeout``, ``max_hold``: ``None`` means no limit. ``raises_loss``: whether the end of a ``with`` block
    raises ``LockLost`` after a loss. ``loss_callback``: called at the moment of the loss.
    """

    ttl: float
    blocking: bool = True
    blocking_timeout: float | None = None
    auto_renew: bool = True
    max_hold: float | None = None
    min_hold: float = 0.0
    fencing: bool = False
    owner: str | Mapping[str, Any] | None = None
    raises_loss: bool = True
    loss_callback: OnLostCallback | None = None

    @property
    def ends_by_itself(self) -> bool:
        """Whether the lease ends even if the holder does not release it: no renewal, or a ``max_hold``."""
        return not self.auto_renew or self.max_hold is not None


class CommonOptions(TypedDict, total=False):
    """The options that all kinds of locks have. Times are seconds; see ``Backend.lock``."""

    ttl: Seconds | None
    blocking: bool
    blocking_timeout: Seconds | None
    auto_renew: bool | None
    max_hold: Seconds | None
    min_hold: Seconds | None
    fencing: bool
    owner: str | Mapping[str, Any] | None
    on_lost: OnLost


class LockKwargs(CommonOptions, total=False):
    """The options of ``Backend.lock``."""

    fair: bool
    every: Seconds | None


def parse_on_lost(on_lost: Any) -> tuple[bool, OnLostCallback | None]:
    """Return ``raises_loss`` and ``loss_callback`` of `LockOptions` for the option ``on_lost`` of a lock.

    Raises ``ValueError`` unless it is an `OnLost`, and ``TypeError`` for a coroutine function, which would not be
    awaited.
    """
    mode, callback = on_lost, None
    if isinstance(on_lost, tuple) and len(on_lost) == 2 and callable(on_lost[1]):
        mode, callback = on_lost
    elif callable(on_lost):
        mode, callback = "warn", on_lost
    if mode not in ("raise", "warn"):
        allowed = '"raise", "warn", a callable, or a tuple such as ("raise", callable)'
        raise ValueError(f"on_lost must be {allowed}, not {on_lost!r}")
    if callback is not None and (iscoroutinefunction(callback) or iscoroutinefunction(callback.__call__)):
        raise TypeError(
            f"on_lost must be a plain function, not the coroutine function {callback!r}; "
            "on an event loop, the function can start a task"
        )
    return mode == "raise", callback


def wait_seconds(blocking: bool, timeout: Seconds) -> float:
    """Return the seconds that ``acquire(blocking, timeout)`` may wait; infinite for a ``timeout`` of -1.

    Raises ``TypeError``, ``ValueError`` and ``OverflowError`` for the arguments that ``threading.Lock.acquire``
    rejects.
    """
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds or a timedelta, not {timeout!r}")
    threading.Lock().acquire(bool(blocking), timeout)  # it is free: only the check of the arguments
    return 0.0 if not blocking else math.inf if timeout == -1 else float(timeout)


# Options of redis-py, threading, python-redis-lock and pottery, with their names in this library.
_KNOWN_ELSEWHERE = {
    "timeout": "ttl (the lease; redis-py's timeout) or blocking_timeout (how long to wait)",
    "acquire_timeout": "blocking_timeout",
    "wait": "blocking_timeout",
    "wait_timeout": "blocking_timeout",
    "expire": "ttl",
    "expiry": "ttl",
    "expires": "ttl",
    "lease": "ttl",
    "lock_timeout": "ttl",
    "auto_release_time": "ttl",
    "auto_renewal": "auto_renew",
    "id": "owner",
}


def unknown_options(where: str, unknown: Iterable[str], known: Iterable[str]) -> TypeError:
    """Return the ``TypeError`` for options that the function ``where`` lacks. It suggests options in ``known``."""
    names, known = list(unknown), list(known)
    hints = [hint for name in names if (hint := _meant(name, known))]
    meant = f"; use {' and '.join(hints)}" if hints else ""
    return TypeError(f"{where}() has no option {', '.join(map(repr, names))}{meant} (options: {', '.join(known)})")


def _meant(name: str, known: list[str]) -> str:
    """Return the known option that corresponds to ``name``, a misspelling or another library's option; ``""``: none."""
    if hint := _KNOWN_ELSEWHERE.get(name, ""):
        return hint if any(re.search(rf"\b{each}\b", hint) for each in known) else ""
    return next(iter(get_close_matches(name, known, 1, 0.5)), "")


def check_options(where: str, options: Mapping[str, Any], known: type[CommonOptions] = LockKwargs) -> None:
    """Raise ``TypeError`` for an option that is not in ``known``. ``where``: the function's name, for the message."""
    if unknown := [name for name in options if name not in known.__annotations__]:
        raise unknown_options(where, unknown, known.__annotations__)
