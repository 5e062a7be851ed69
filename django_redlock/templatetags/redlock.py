"""Words for the admin's pages."""

from __future__ import annotations

from typing import Any

from django import template

from ..rows import duration as _duration

register = template.Library()


@register.filter
def duration(seconds: float | None) -> str:
    """Seconds as people say them."""
    return "unknown" if seconds is None else _duration(seconds)


@register.filter
def facts(node: dict[str, Any]) -> list[tuple[str, Any]]:
    """What a row of ``health()`` says beside the node's name and its problems."""
    shown = [
        (label.replace("_", " "), value) for label, value in node.items() if label not in ("node", "ok", "problems")
    ]
    return [(label, value) for label, value in shown if value not in ("", None)]
