"""Words for the admin's pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import template

from ..rows import duration as _duration

register = template.Library()

_HEAD = {"node", "ok", "problems", "warnings", "run_id"}  # shown otherwise, or of no use to people
_SAID: dict[str, Callable[[Any], str]] = {
    "uptime": _duration,
    "replica_lag": _duration,
    "clock_difference": lambda seconds: f"{seconds * 1000:+.0f} ms",
    "round_trip": lambda seconds: f"{seconds * 1000:.1f} ms",
}


@register.filter
def duration(seconds: float | None) -> str:
    """Seconds as people say them."""
    return "unknown" if seconds is None else _duration(seconds)


@register.filter
def milliseconds(seconds: float) -> str:
    """Short times."""
    return f"{seconds * 1000:.1f} ms"


@register.filter
def facts(node: dict[str, Any]) -> list[tuple[str, str]]:
    """What a row of ``health()`` says beside the node's name and its problems."""
    known = {name: value for name, value in node.items() if name not in _HEAD and value not in ("", None)}
    return [(name.replace("_", " "), _SAID.get(name, str)(value)) for name, value in known.items()]
