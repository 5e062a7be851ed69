"""Words for the admin's pages."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..core.owner import Owner
from ..formatting import age, event_text, facts
from ..formatting import duration as _duration

register = template.Library()
register.filter(facts)
register.filter(event_text)


@register.filter
def duration(seconds: float | None) -> str:
    """Seconds as people say them."""
    return "unknown" if seconds is None else _duration(seconds)


@register.filter
def moment(since: float) -> SafeString:
    """When and how long ago, in the local time zone."""
    try:
        when = timezone.localtime(datetime.fromtimestamp(since, UTC))
    except (ValueError, OverflowError, OSError):  # somebody else's number
        return format_html("{}", since)
    title = date_format(when, "DATETIME_FORMAT")
    passed = _duration(age(Owner(since=since)) or 0.0)
    return format_html('<time datetime="{}" title="{}">{}</time>', when.isoformat(), title, passed)


@register.filter
def milliseconds(seconds: float) -> str:
    """Short times."""
    return f"{seconds * 1000:.1f} ms"
