"""Derives the lock's name from a call of a task. Equal calls get the same name however the arguments are passed."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from ..core.keys import check_name, shorten_name
from ..name_templates import namer

_HEADERS = "headers"  # the argument of ``key`` that holds the message's headers
SCALARS = (str, int, float, bool, type(None))
_json = json.JSONEncoder(ensure_ascii=False).encode

TextOf = Callable[[Any], str]


class _Texts(dict[str, Any]):
    """A dict of message headers in which a missing header is an empty text."""

    def __missing__(self, name: str) -> str:
        return ""


class LockNamer:
    """Derives the lock's name from each call of one task.

    ``this``: ``(None,)`` if the task's function takes ``self``, else ``()``. Raises ``TypeError`` when ``key``,
    ``ValueError`` when ``unique_on`` names an argument that the task doesn't have.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        key: str | Callable[..., str] | None,
        unique_on: tuple[str, ...] | None,
        this: tuple[None, ...] = (),
    ) -> None:
        self._signature = inspect.signature(function)
        self._function = getattr(function, "__qualname__", repr(function))
        self._unique_on = unique_on
        self._this = this
        parameters = self._signature.parameters
        self._key: Callable[..., str] | None = None
        self._headers: type[dict[str, Any]] | None = None  # the type in which the key gets the headers, if it does
        if callable(key):
            self._key, self._headers = key, dict[str, Any] if _HEADERS in inspect.signature(key).parameters else None
        elif key is not None:
            given = () if _HEADERS in parameters else (_HEADERS,)
            self._key, self._headers = partial(namer(key, function, *given), *this), _Texts if given else None
        simple = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters.values())
        self._positional = list(parameters)[len(this) :] if simple else None
        for name in unique_on or ():
            if name not in parameters:
                where = f"single_instance_task(unique_on={list(unique_on or ())!r}) of {self._function}()"
                known = ", ".join(parameters) or "it has none"
                raise ValueError(f"{where}: there is no argument {name!r} (arguments: {known})")

    def name(
        self,
        task: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        text_of: TextOf,
        headers: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Return the lock's name for a call of the task named ``task``.

        ``text_of``: returns a value that is not of a JSON type as text, or raises an error if the value can't be sent.
        ``headers``: the message's headers, for a ``key`` that uses them. Raises ``TypeError`` when the arguments don't
        fit the task, ``ValueError`` for a name that no lock can have.
        """
        if self._key is not None:
            given = {_HEADERS: self._headers(headers)} if self._headers else {}
            name = self._key(*args, **{**given, **kwargs})
            if not isinstance(name, str):
                raise TypeError(f"key of {task} returned {name!r}: a lock's name must be a text")
        else:
            arguments = self._bound(args, kwargs)
            chosen = {name: arguments[name] for name in (arguments if self._unique_on is None else self._unique_on)}
            name = f"{task}({','.join(self._argument_text(*each, text_of) for each in chosen.items())})"
        name = shorten_name(name)
        check_name(name)
        return name

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, with default values and without ``self``."""
        names = self._positional
        if names is not None and not kwargs and len(args) == len(names):
            return dict(zip(names, args, strict=True))  # the common case, many times faster than bind()
        try:
            bound = self._signature.bind(*self._this, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._function}(): {error}") from None
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[len(self._this) :])

    def _argument_text(self, name: str, value: Any, text_of: TextOf) -> str:
        try:
            return f"{name}={canonical(value, text_of)}"
        except Exception:
            if value is not self._signature.parameters[name].default:
                raise
            return f"{name}=..."  # the default can't be serialized, and is never sent


def canonical(value: Any, text_of: TextOf) -> str:
    """Return ``value`` as a text that is the same in the sender and in the worker.

    Values of different types have different texts. ``text_of``: returns the text of a value that is not of a JSON type.
    """
    kind = type(value)
    if kind in SCALARS:
        return _json(value)
    if kind in (list, tuple):
        return f"[{','.join([canonical(each, text_of) for each in value])}]"
    if kind is dict and all(type(key) is str for key in value):
        return mapping_text(value, text_of)
    return text_of(value)


def mapping_text(value: dict[Any, Any], text_of: TextOf) -> str:
    """Return a dict as a text that does not depend on the order of the keys. ``text_of``: as for `canonical`."""
    pairs = sorted(f"{canonical(key, text_of)}:{canonical(each, text_of)}" for key, each in value.items())
    return f"{{{','.join(pairs)}}}"
