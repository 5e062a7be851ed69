"""Template filters of the admin's pages: durations, times and texts of events."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..core.owner import Owner
from ..formatting import age, duration, event_text, facts, milliseconds, printable

register = template.Library()
for function in (age, duration, event_text, facts, milliseconds, printable):
    register.filter(function)


@register.filter
def moment(since: float) -> SafeString:
    """Return the time passed since the Unix time ``since``, as an element whose title is the local time."""
    passed = duration(age(Owner(since=since)) or 0.0)
    return format_html('<span title="{}">{}</span>', local_time(since, "DATETIME_FORMAT"), passed)


def local_time(since: float, form: str) -> str:
    """Format a Unix time in the current time zone. ``form``: as in Django's ``date_format``."""
    try:
        return date_format(timezone.localtime(datetime.fromtimestamp(since, UTC)), form)
    except (ValueError, OverflowError, OSError):  # not a Unix time: the number comes from another program
        return str(since)
