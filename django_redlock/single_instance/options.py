"""`TaskOptions`: the options of ``single_instance_task``, each with its type, default and description.

Signatures, checks and the table in the documentation are generated from its fields.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any, Literal, ParamSpec, Protocol, TypeVar, cast, get_args, get_type_hints, overload

from django.conf import settings

from ..core.options import unknown_options
from ..core.values import Seconds, seconds
from .call import ACTIONS, AT_START, AT_SUBMIT, MODES, Mode, ModeName, OnConflict

PROJECT_SETTING = "REDLOCK_TASKS"  # Django setting with the project's own defaults
_PER_TASK = ("key", "unique_on")  # options without a default for the whole project
DEFAULT_BODY_TTL = 30.0  # seconds
_DROPPING = ("skip", "log")  # the actions after which a refused call does not run

O = ParamSpec("O")  # noqa: E741
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options of ``single_instance_task``. Raises ``TypeError`` and ``ValueError`` for invalid options."""

    mode: Annotated[ModeName, "from when to when a call holds the lock"] = "until_executed"
    key: Annotated[
        str | Callable[..., str] | None,
        "the lock's name: a text with argument names in braces, or a callable that gets the arguments. If the callable "
        "has a parameter ``headers``, it also gets the message's headers. ``None``: the task's name with its arguments",
    ] = None
    unique_on: Annotated[
        str | Sequence[str] | None,
        "the arguments that the default name contains; ``None``: all. Not together with ``key``",
    ] = None
    on_conflict: Annotated[
        OnConflict | tuple[OnConflict, OnConflict] | None,
        "what happens to a duplicate. In a pair, the first word is for submit, the second for start. ``None``: skip at "
        "both; with ``until_and_while_executing`` skip at submit and retry at start",
    ] = None
    ttl: Annotated[
        Seconds | None,
        "the lease of a running body, renewed while the body runs; ``None``: 30 s, or the backend's ``max_ttl`` if "
        "that is less. With ``until_expired``, ``ttl`` is the period",
    ] = None
    queue_ttl: Annotated[Seconds, "how long a call counts as queued, counted from its ETA or last retry"] = 86400
    limit: Annotated[int, "the number of calls allowed at a time"] = 1
    on_store_error: Annotated[Literal["raise", "run"], '``"run"``: run without a lock while the store is down'] = (
        "raise"
    )
    using: Annotated[str, "the alias of the lock backend"] = "default"
    conflict_timeout: Annotated[Seconds, 'how long ``"wait"`` waits'] = 10
    conflict_retries: Annotated[
        int | None,
        'how often ``"retry"`` postpones a call before it fails; ``None``: 20 times, or without limit with '
        "``until_and_while_executing``",
    ] = None

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str) or self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(get_args(ModeName))}, not {self.mode!r}")
        if self.key is not None and self.unique_on is not None:
            raise ValueError("give key or unique_on, not both: unique_on picks arguments for the default key")
        if not (self.key is None or isinstance(self.key, str) or callable(self.key)):
            raise TypeError(f'key must be a text like "settle:{{order_id}}" or a callable, not {self.key!r}')
        if not all(isinstance(name, str) for name in self.names or ()):
            raise TypeError(f"unique_on must be the name of an argument, or a list of names, not {self.unique_on!r}")
        if not _is_count(self.limit):
            raise ValueError(f"limit must be at least 1, not {self.limit!r}")
        if self.on_store_error not in ("raise", "run"):
            raise ValueError(f'on_store_error must be "raise" or "run", not {self.on_store_error!r}')
        if self.conflict_retries is not None and not _is_count(self.conflict_retries):
            raise ValueError(f"conflict_retries must be at least 1 or None, not {self.conflict_retries!r}")
        for name in ("ttl", "queue_ttl", "conflict_timeout"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, seconds(given, name))
        _ = self.actions

    @cached_property
    def states(self) -> Mode:
        """The states, at submit and at start, in which a call refuses another call. They follow from ``mode``."""
        return MODES[self.mode]

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The option ``unique_on`` as a tuple."""
        given: Any = self.unique_on
        several = isinstance(given, Iterable) and not isinstance(given, str)
        return None if given is None else tuple(given) if several else (given,)

    @cached_property
    def actions(self) -> tuple[OnConflict, OnConflict]:
        """The actions of ``on_conflict`` for a duplicate: at submit, and at start.

        Raises ``ValueError`` for an unknown action, and for one that the mode or ``limit`` does not support.
        """
        given: Any = self.on_conflict
        waits = self.mode == "until_and_while_executing"
        default: OnConflict = "retry" if waits else "skip"
        if isinstance(given, tuple):
            at_submit, at_start = _pair(given)
        elif given is None or callable(given):
            at_submit, at_start = given or "skip", given or default
        elif given not in ACTIONS:
            raise ValueError(f"on_conflict must be one of {', '.join(ACTIONS)}, a callable or a pair, not {given!r}")
        else:  # one word for both sides: the default on a side that does not support it
            at_submit = given if given in AT_SUBMIT else "skip"
            at_start = given if given in AT_START and not (waits and given in _DROPPING) else default
            if given not in (at_submit if self.states.at_submit else None, at_start):
                raise ValueError(f"mode={self.mode!r} does not support on_conflict={given!r}")
        if at_submit == "replace" and self.limit > 1:
            raise ValueError('on_conflict="replace" needs limit=1: of several queued calls it could replace any')
        if at_submit == "replace" and self.states.until_expiry:
            raise ValueError(
                f"mode={self.mode!r} does not support on_conflict='replace': two calls would run within the period"
            )
        if waits and at_start in _DROPPING:
            raise ValueError(
                f"mode={self.mode!r} keeps one call waiting: on_conflict={at_start!r} at start would lose it"
            )
        return at_submit, at_start

    @cached_property
    def retries(self) -> int | None:
        """How often a refused call is tried again at most; ``None``: no limit."""
        waits = self.mode == "until_and_while_executing"  # retried without limit, so that it is not lost
        return self.conflict_retries or (None if waits else 20)

    @cached_property
    def queued_ttl(self) -> float:
        """The time in seconds after a call's ETA at which its queued record expires."""
        return cast("float", (self.ttl or DEFAULT_BODY_TTL) if self.states.until_expiry else self.queue_ttl)

    def body_ttl(self, max_ttl: float) -> float:
        """Return the lease of a running body in seconds: the option ``ttl``, or a default of at most ``max_ttl``."""
        if self.ttl is not None and not self.states.until_expiry:
            return cast("float", self.ttl)
        return min(cast("float", self.ttl or DEFAULT_BODY_TTL), DEFAULT_BODY_TTL, max_ttl)


OPTIONS = tuple(each.name for each in fields(TaskOptions))


def checked_options(given: Mapping[str, Any], known: Sequence[str] = OPTIONS) -> TaskOptions:
    """Return ``given`` as `TaskOptions`, with the project's defaults for options that are not given.

    ``known``: the names that are allowed. Raises ``TypeError`` and ``ValueError`` for invalid options.
    """
    if unknown := [name for name in given if name not in known]:
        raise unknown_options("single_instance_task", unknown, known)
    return TaskOptions(**{**project_defaults(), **given})


def project_defaults() -> dict[str, Any]:
    """Return the Django setting ``REDLOCK_TASKS``: the defaults of this project. Empty without Django settings."""
    if not (settings.configured or "DJANGO_SETTINGS_MODULE" in os.environ):
        return {}
    given: Any = getattr(settings, PROJECT_SETTING, {})
    if unknown := [name for name in given if name not in OPTIONS or name in _PER_TASK]:
        raise unknown_options(PROJECT_SETTING, unknown, [name for name in OPTIONS if name not in _PER_TASK])
    return dict(given)


class TaskDecorator(Protocol[O]):
    """The type of a task decorator. Its options are the parameters ``O``."""

    @overload
    def __call__(self, task: T, /) -> T: ...
    @overload
    def __call__(self, *args: O.args, **options: O.kwargs) -> Callable[[T], T]: ...


def takes(options: Callable[O, Any], *left_out: str) -> Callable[[Callable[..., Any]], TaskDecorator[O]]:
    """Return a decorator that gives a function the signature of a task decorator with ``options``.

    The text ``{options}`` in the function's docstring is replaced with a line for each option. ``left_out``: options
    that the function does not take.
    """

    def typed(function: Callable[..., Any]) -> TaskDecorator[O]:
        first, *_ = inspect.signature(function).parameters.values()
        types = get_type_hints(options)
        known = [each for name, each in inspect.signature(options).parameters.items() if name not in left_out]
        typed = [each.replace(annotation=types[each.name]) for each in known]
        vars(function)["__signature__"] = inspect.Signature([first, *typed])
        lines = [f"- ``{each.name}`` ({each.default!r}): {meaning_of(each.name)}." for each in known]
        function.__doc__ = (function.__doc__ or "").replace("{options}", "\n    ".join(lines))
        return cast("TaskDecorator[O]", function)

    return typed


def meaning_of(option: str) -> str:
    """Return the description of ``option`` from the source of `TaskOptions`."""
    return str(get_type_hints(TaskOptions, include_extras=True)[option].__metadata__[0])


def _is_count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 1


def _pair(given: tuple[Any, ...]) -> tuple[OnConflict, OnConflict]:
    """Return ``given``, a pair of actions at submit and at start. Raises ``ValueError`` for an invalid pair."""
    if len(given) != 2:
        raise ValueError(f"on_conflict must be one value or a pair (at submit, at start), not {given!r}")
    for side, action, known in zip(("submit", "start"), given, (AT_SUBMIT, AT_START), strict=True):
        if not (callable(action) or action in known):
            raise ValueError(f"on_conflict at {side} must be one of {', '.join(known)} or a callable, not {action!r}")
    return given[0], given[1]
