"""Checks the arguments of ``single_instance_task`` when the task is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from ..core.values import Seconds, seconds
from .conflicts import AT_START, AT_SUBMIT, OnConflict

ModeName = Literal["until_executed", "until_executing", "while_executing", "until_and_while_executing", "until_expired"]


class Mode(NamedTuple):
    """A mode of ``single_instance_task``: the states in which one call refuses another.

    ``at_submit``: the states of another call ("queued", "running") in which a call is refused at submit; ``""``: never.
    ``at_start``: the same for the start of the body. ``until_expiry``: the call counts as queued until its ttl has
    passed, even after its body has ended. A running body has a lease in every mode, so that a redelivered message does
    not run at the same time.
    """

    at_submit: str
    at_start: str
    until_expiry: bool = False


MODES: dict[str, Mode] = {
    "until_executed": Mode("queued running", "queued running"),
    "until_executing": Mode("queued", "queued"),
    "while_executing": Mode("", "running"),
    "until_and_while_executing": Mode("queued", "running"),
    "until_expired": Mode("queued", "queued", until_expiry=True),
}
DEFAULT_BODY_TTL = 30.0  # seconds
_DROPPING = ("skip", "log")  # the actions after which a refused call does not run


class TaskOptions(NamedTuple):
    """The checked arguments of ``single_instance_task``. Times are seconds.

    ``name``: the name of the mode. ``at_submit`` and ``at_start``: the actions of ``on_conflict``. ``ttl``: the lease
    of the body, or the period of ``until_expired``. ``has_lease``: whether the user gave a ``ttl`` that is the lease,
    not the period. ``run_unprotected``: run without a lock when the store is unavailable. ``wait``: the argument
    ``conflict_timeout``. ``retries``: the argument ``conflict_retries``; ``None``: no limit.
    """

    name: str
    mode: Mode
    key: str | Callable[..., str] | None
    unique_on: tuple[str, ...] | None
    at_submit: OnConflict
    at_start: OnConflict
    ttl: float
    has_lease: bool
    queue_ttl: float
    limit: int
    run_unprotected: bool
    using: str
    wait: float
    retries: int | None

    @property
    def queued_ttl(self) -> float:
        """The time to live of a queued record in seconds, from the ETA on."""
        return self.ttl if self.mode.until_expiry else self.queue_ttl

    def body_ttl(self, max_ttl: float) -> float:
        """Return the lease of a running body in seconds: the declared ttl, or the default capped at ``max_ttl``."""
        return self.ttl if self.has_lease else min(self.ttl, DEFAULT_BODY_TTL, max_ttl)


def options(
    *,
    mode: ModeName,
    key: str | Callable[..., str] | None,
    unique_on: str | Sequence[str] | None,
    on_conflict: OnConflict | tuple[OnConflict, OnConflict] | None,
    ttl: Seconds | None,
    queue_ttl: Seconds,
    limit: int,
    on_store_error: Literal["raise", "run"],
    using: str,
    conflict_timeout: Seconds,
    conflict_retries: int | None,
) -> TaskOptions:
    """Check the arguments of ``single_instance_task``, and return them as `TaskOptions`.

    Raises ``TypeError`` or ``ValueError`` for invalid arguments.
    """
    if not isinstance(mode, str) or mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(get_args(ModeName))}, not {mode!r}")
    if key is not None and unique_on is not None:
        raise ValueError("give key or unique_on, not both: unique_on picks arguments for the default key")
    if not (key is None or isinstance(key, str) or callable(key)):
        raise TypeError(f'key must be a text like "settle:{{order_id}}" or a callable, not {key!r}')
    if not _is_count(limit):
        raise ValueError(f"limit must be at least 1, not {limit!r}")
    if on_store_error not in ("raise", "run"):
        raise ValueError(f'on_store_error must be "raise" or "run", not {on_store_error!r}')
    if conflict_retries is not None and not _is_count(conflict_retries):
        raise ValueError(f"conflict_retries must be at least 1 or None, not {conflict_retries!r}")
    at_submit, at_start = _conflict(mode, on_conflict, limit)
    waits = mode == "until_and_while_executing"  # the call is retried without limit, so that it is not lost
    return TaskOptions(
        mode,
        MODES[mode],
        key,
        None if unique_on is None else _argument_names(unique_on),
        at_submit,
        at_start,
        DEFAULT_BODY_TTL if ttl is None else seconds(ttl, "ttl"),
        ttl is not None and not MODES[mode].until_expiry,
        seconds(queue_ttl, "queue_ttl"),
        limit,
        on_store_error == "run",
        using,
        seconds(conflict_timeout, "conflict_timeout"),
        conflict_retries or (None if waits else 20),
    )


def _is_count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 1


def _argument_names(given: Any) -> tuple[str, ...]:
    """Return the argument ``unique_on`` as a tuple. Raises ``TypeError`` for anything but names of arguments."""
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"unique_on must be the name of an argument, or a list of names, not {given!r}")
    return names


def _conflict(mode: str, given: Any, limit: int) -> tuple[OnConflict, OnConflict]:
    """Return two actions for a duplicate: the first at submit, the second at start.

    ``given``: the argument ``on_conflict``, a pair with both actions or a single action. Raises ``ValueError`` for an
    unknown action, and for one that the mode or ``limit`` does not support.
    """
    waits = mode == "until_and_while_executing"
    default: OnConflict = "retry" if waits else "skip"
    if given is None:
        return "skip", default
    at_submit, at_start = _pair(given) if isinstance(given, tuple) else _on_both_sides(mode, given, default)
    if at_submit == "replace" and limit > 1:
        raise ValueError('on_conflict="replace" needs limit=1: of several queued calls it could replace any')
    if at_submit == "replace" and MODES[mode].until_expiry:
        raise ValueError(f"mode={mode!r} does not support on_conflict='replace': two calls would run within the period")
    if waits and at_start in _DROPPING:
        raise ValueError(f"mode={mode!r} keeps one call waiting: on_conflict={at_start!r} at start would lose it")
    return at_submit, at_start


def _pair(given: tuple[Any, ...]) -> tuple[OnConflict, OnConflict]:
    """Return the two actions of a pair, checked."""
    if len(given) != 2:
        raise ValueError(f"on_conflict must be one value or a pair (at submit, at start), not {given!r}")
    for side, action, known in zip(("submit", "start"), given, (AT_SUBMIT, AT_START), strict=True):
        if not (callable(action) or action in known):
            raise ValueError(f"on_conflict at {side} must be one of {', '.join(known)} or a callable, not {action!r}")
    return given[0], given[1]


def _on_both_sides(mode: str, action: Any, default: OnConflict) -> tuple[OnConflict, OnConflict]:
    """Return a single action for submit and for start.

    Where the action is not supported, "skip" is used at submit, and ``default``, the mode's own, at start. Raises
    ``ValueError`` for an action that is supported at neither.
    """
    if callable(action):
        return action, action
    words = dict.fromkeys((*AT_SUBMIT, *AT_START))
    if isinstance(action, str) and action not in words:
        raise ValueError(f"on_conflict must be one of {', '.join(words)}, a callable or a pair, not {action!r}")
    at_submit: OnConflict = action if action in AT_SUBMIT else "skip"
    at_start: OnConflict = default if action not in AT_START or (default == "retry" and action in _DROPPING) else action
    if action not in (at_submit if MODES[mode].at_submit else None, at_start):
        raise ValueError(f"mode={mode!r} does not support on_conflict={action!r}")
    return at_submit, at_start
