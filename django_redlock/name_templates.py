"""Templates for names of locks that depend on the arguments of a call: ``"report:{report_id}"``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from string import Formatter
from typing import Any


def namer(template: str, function: Callable[..., Any], *given: str, follow_wrapped: bool = True) -> Callable[..., str]:
    """Return a function that derives the lock's name from the arguments of a call of ``function``.

    The returned function takes the arguments of ``function`` and, as keyword arguments, the names in ``given``.
    A field of ``template`` begins with the name of an argument and may use the syntax of ``str.format``, such as
    ``{order.pk}`` or ``{page:03}``. An argument that the call leaves out has its default value. ``follow_wrapped``: as
    in ``inspect.signature``.

    Raises ``TypeError`` for a field that is not an argument of ``function``. If ``function`` takes ``**kwargs``, any
    field is accepted, and a call without that argument raises the ``TypeError``. Raises ``ValueError`` for a
    malformed template.
    """
    where = f"the lock name {template!r} of {getattr(function, '__qualname__', function)}()"
    fields = dict.fromkeys(_fields(template, where))
    signature = inspect.signature(function, follow_wrapped=follow_wrapped)
    parameters = signature.parameters
    rest = next((name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD), "")
    unknown = [field for field in fields if field not in parameters and field not in given]
    if unknown and not rest:
        known = ", ".join([*given, *parameters]) or "it has none"
        raise TypeError(f"{where} has no argument {', '.join(map(repr, unknown))} (arguments: {known})")

    def name(*args: Any, **kwargs: Any) -> str:
        extra = {key: kwargs.pop(key) for key in given}
        bound = signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        values = {**extra, **bound.arguments, **bound.arguments.get(rest, {})}
        if missing := [field for field in fields if field not in values]:
            raise TypeError(f"{where} needs {', '.join(map(repr, missing))}, which this call does not have")
        return template.format_map(values)

    return name if fields else lambda *_args, **_kwargs: template


def _fields(template: str, where: str) -> Iterator[str]:
    try:
        parts = [(field, spec or "") for _, field, spec, _ in Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise ValueError(f"{where}: {error} (write a literal brace twice)") from error
    for field, spec in parts:
        argument = re.split(r"[.\[]", field, maxsplit=1)[0]
        if not argument.isidentifier():
            raise ValueError(f"{where}: {{{field}}} is not the name of an argument")
        yield argument
        yield from _fields(spec, where)
