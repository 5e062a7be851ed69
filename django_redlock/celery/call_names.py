"""Derives the lock's name from a call. Equal calls get the same name however the arguments are passed."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from string import Formatter
from typing import Any

from kombu.exceptions import EncodeError
from kombu.serialization import dumps, loads

from ..core.keys import check_name

MAX_NAME_BYTES = 200  # a longer name is cut, and a hash is appended
_SCALARS = (str, int, float, bool, type(None))


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
        """Return the arguments by name, with defaults applied and without ``self``."""
        names = self._positional
        if names is not None and not kwargs and len(args) + len(this) == len(names):
            return dict(zip(names[len(this) :], args, strict=True))  # the common case, many times faster than bind()
        bound = self._signature.bind(*this, *args, **kwargs)
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[len(this) :])

    def name(
        self, task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], serializer: str, this: tuple[Any, ...] = ()
    ) -> str:
        """Return the lock's name for a call of ``task``. ``this``: a placeholder for ``self`` if the task is bound.

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
                name = f"{task}({','.join(self._argument_text(*each, serializer) for each in chosen.items())})"
        return _shortened(name)

    def _argument_text(self, name: str, value: Any, serializer: str) -> str:
        try:
            return f"{name}={canonical(value, serializer)}"
        except EncodeError:
            if value is not self._signature.parameters[name].default:
                raise
            return f"{name}=..."  # the default can't be serialized, and Celery never sends a default


def _arguments_in(key: str, where: str) -> tuple[str, ...]:
    """Return the argument names in ``key``. Raises ``ValueError`` for a brace that is not closed."""
    try:
        fields = [field for _, field, _, _ in Formatter().parse(key) if field is not None]
    except ValueError as error:
        raise ValueError(f"{where}: {error} (write a literal brace twice)") from error
    return tuple(field.replace("[", ".").partition(".")[0] for field in fields)


def canonical(value: Any, serializer: str = "json") -> str:
    """Return ``value`` as a text that is the same in the sender and in the worker.

    Values of different types have different texts.
    """
    kind = type(value)
    if kind in _SCALARS:
        return json.dumps(value, ensure_ascii=False)
    if kind in (list, tuple):
        return f"[{','.join([canonical(each, serializer) for each in value])}]"
    if kind is dict and all(type(key) is str for key in value):
        return _mapping(value, serializer)
    return _received_text(value, serializer)


def _mapping(value: dict[Any, Any], serializer: str) -> str:
    pairs = sorted(f"{canonical(key, serializer)}:{canonical(each, serializer)}" for key, each in value.items())
    return f"{{{','.join(pairs)}}}"


def _received_text(value: Any, serializer: str) -> str:
    """Return the text of a value that is not a JSON type.

    The text describes the value that a worker receives, after a round trip through ``serializer``.
    """
    content_type, encoding, data = dumps([value], serializer)
    received = loads(data, content_type, encoding, accept=[content_type])[0]
    kind = type(received)
    if kind is dict:
        return _mapping(received, serializer)
    if kind in (*_SCALARS, list, tuple):
        return canonical(received, serializer)
    if isinstance(received, set | frozenset):
        return f"{{{','.join(sorted(canonical(each, serializer) for each in received))}}}"
    text = str(received)
    if " at 0x" in text:  # the text contains the object's address, which differs in each process
        text = sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()[:32]
    return f"{kind.__name__}({text})"


def _shortened(name: str) -> str:
    if not name.isascii():  # JSON can carry a lone surrogate, which UTF-8 can't encode
        name = name.encode(errors="backslashreplace").decode()
    if 4 * len(name) > MAX_NAME_BYTES and len(encoded := name.encode()) > MAX_NAME_BYTES:
        digest = sha256(encoded).hexdigest()[:32]
        name = encoded[: MAX_NAME_BYTES - 40].decode(errors="ignore") + "~" + digest
    check_name(name)
    return name
