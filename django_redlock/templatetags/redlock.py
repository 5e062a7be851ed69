"""Words for the admin's pages."""

from __future__ import annotations

from django import template

from ..rows import duration as _duration
from ..rows import facts

register = template.Library()
register.filter(facts)


@register.filter
def duration(seconds: float | None) -> str:
    """Seconds as people say them."""
    return "unknown" if seconds is None else _duration(seconds)


@register.filter
def milliseconds(seconds: float) -> str:
    """Short times."""
    return f"{seconds * 1000:.1f} ms"
