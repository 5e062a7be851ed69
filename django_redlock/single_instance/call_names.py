"""Derives the lock's name from a call of a task. Equal calls get the same name however the arguments are passed."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from ..core.keys import check_name, shorten_name

MAX_CALL_NAME_BYTES = 200  # a longer name is cut, and a hash is appended
SCALARS = (str, int, float, bool, type(None))

TextOf = Callable[[Any], str]


class CallNamer:
    """Derives lock names for the calls of one task.

    Raises ``ValueError`` when ``key`` or ``unique_on`` refers to an argument that the task doesn't have.
    """

    def __init__(
        self, function: Callable[..., Any], key: str | Callable[..., str] | None, unique_on: tuple[str, ...] | None
    ) -> None:
        self._signature = inspect.signature(function)
        self._key = key
        parameters = self._signature.parameters.values()
        simple = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)
        self._positional = [each.name for each in parameters] if simple else None
        self._unique_on = unique_on
        option = f"unique_on={list(unique_on)!r}" if unique_on else f"key={key!r}"
        where = f"single_instance_task({option}) of {getattr(function, '__qualname__', function)}()"
        wanted = _arguments_in(key, where) if isinstance(key, str) else unique_on or ()
        unknown = [name for name in wanted if name not in self._signature.parameters]
        if unknown:
            known = ", ".join(self._signature.parameters) or "it has none"
            raise ValueError(f"{where}: there is no argument {unknown[0]!r} (arguments: {known})")

    def _bound(self, this: tuple[Any, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, with defaults applied.

        ``this``: ``(None,)`` if the task's function has a first argument that messages don't contain, such as ``self``;
        else ``()``. The result leaves this argument out.
        """
        names = self._positional
        if names is not None and not kwargs and len(args) + len(this) == len(names):
            return dict(zip(names[len(this) :], args, strict=True))  # the common case, many times faster than bind()
        bound = self._signature.bind(*this, *args, **kwargs)
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[len(this) :])

    def name(
        self, task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], text_of: TextOf, this: tuple[Any, ...] = ()
    ) -> str:
        """Return the lock's name for a call of the task named ``task``.

        ``text_of``: a function for values that are not of a JSON type. It returns the value as text, or raises an error
        if the value can't be sent. ``this``: ``(None,)`` if the task's function has a first argument that messages
        don't contain, such as ``self``; else ``()``.
        Raises ``TypeError`` when the arguments don't fit the task, ``ValueError`` for a name that no lock can have.
        """
        if callable(self._key):
            name = self._key(*args, **kwargs)
            if not isinstance(name, str):
                raise TypeError(f"key of {task} returned {name!r}: a lock's name must be a text")
        else:
            arguments = self._bound(this, args, kwargs)
            if self._key is not None:
                name = self._key.format_map(arguments)
            else:
                chosen = {name: arguments[name] for name in (arguments if self._unique_on is None else self._unique_on)}
                name = f"{task}({','.join(self._argument_text(*each, text_of) for each in chosen.items())})"
        name = shorten_name(name, MAX_CALL_NAME_BYTES)
        check_name(name)
        return name

    def _argument_text(self, name: str, value: Any, text_of: TextOf) -> str:
        try:
            return f"{name}={canonical(value, text_of)}"
        except Exception:
            if value is not self._signature.parameters[name].default:
                raise
            return f"{name}=..."  # the default can't be serialized, and is never sent


def _arguments_in(key: str, where: str) -> tuple[str, ...]:
    """Return the names of the arguments that stand in braces in ``key``.

    ``where``: the beginning of the error's text. Raises ``ValueError`` for a brace that is not closed.
    """
    try:
        fields = [field for _, field, _, _ in Formatter().parse(key) if field is not None]
    except ValueError as error:
        raise ValueError(f"{where}: {error} (write a literal brace twice)") from error
    return tuple(field.replace("[", ".").partition(".")[0] for field in fields)


def canonical(value: Any, text_of: TextOf) -> str:
    """Return ``value`` as a text that is the same in the sender and in the worker.

    Values of different types have different texts. ``text_of``: returns the text of a value that is not of a JSON type.
    """
    kind = type(value)
    if kind in SCALARS:
        return json.dumps(value, ensure_ascii=False)
    if kind in (list, tuple):
        return f"[{','.join([canonical(each, text_of) for each in value])}]"
    if kind is dict and all(type(key) is str for key in value):
        return mapping_text(value, text_of)
    return text_of(value)


def mapping_text(value: dict[Any, Any], text_of: TextOf) -> str:
    """Return a dict as a text that does not depend on the order of the keys. ``text_of``: as for `canonical`."""
    pairs = sorted(f"{canonical(key, text_of)}:{canonical(each, text_of)}" for key, each in value.items())
    return f"{{{','.join(pairs)}}}"
