"""Template filters of the admin's pages: durations, times and texts of events."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from ..core.owner import Owner
from ..formatting import age, event_text, facts, printable
from ..formatting import duration as _duration

register = template.Library()
register.filter(facts)
register.filter(event_text)
register.filter(printable)


@register.filter
def duration(seconds: float | None) -> str:
    """Format a duration in seconds as text such as ``3 min 12 s``. ``None`` becomes ``unknown``."""
    return gettext("unknown") if seconds is None else _duration(seconds)


@register.filter
def moment(since: float) -> SafeString:
    """Return a ``<time>`` element: its text is the time passed since the Unix time ``since``, its title the local time.

    A number that is not a valid Unix time is returned as text.
    """
    try:
        when = timezone.localtime(datetime.fromtimestamp(since, UTC))
    except (ValueError, OverflowError, OSError):  # not a Unix time: the number comes from another program
        return format_html("{}", since)
    title = date_format(when, "DATETIME_FORMAT")
    passed = _duration(age(Owner(since=since)) or 0.0)
    return format_html('<time datetime="{}" title="{}">{}</time>', when.isoformat(), title, passed)


@register.filter
def milliseconds(seconds: float) -> str:
    """Format a duration in seconds as milliseconds with one decimal, such as ``1.5 ms``."""
    return f"{seconds * 1000:.1f} ms"
