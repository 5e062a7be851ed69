"""What the list shows of a lock. All of it is other people's text: nothing here is marked safe but our own markup."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join

from ..core.owner import Owner
from ..handler import locks
from ..rows import age, duration

if TYPE_CHECKING:
    from django.utils.safestring import SafeString

    from ..models import HeldLock

UNKNOWN = "unknown"


def moment(since: float) -> SafeString:
    """When and how long ago, in the local time zone."""
    try:
        when = timezone.localtime(datetime.fromtimestamp(since, UTC))
    except (ValueError, OverflowError, OSError):  # somebody else's number
        return format_html("{}", since)
    title = date_format(when, "DATETIME_FORMAT")
    passed = duration(age(Owner(since=since)) or 0.0)
    return format_html('<time datetime="{}" title="{}">{}</time>', when.isoformat(), title, passed)


def bar(left: float | None, full: float) -> SafeString:
    """The lease as a bar that runs down. Below a third it is late: a renewal should have come."""
    if left is None:
        return format_html('<span class="redlock-bad">{}</span>', "no end")
    full = max(full, left)
    late = " redlock-late" if left < full / 3 else ""
    numbers = f"{full:.3f}", f"{left:.3f}"
    progress = format_html('<progress max="{}" value="{}" aria-label="Lease left"></progress>', *numbers)
    return format_html('<span class="redlock-left{}">{} <span>{} s</span></span>', late, progress, math.ceil(left))


def ttl_of(alias: str) -> float:
    """The ttl that locks of this store usually have."""
    return locks[alias].ttl


class Columns:
    """The columns of the list and the lines of the detail page."""

    admin_site: Any

    @admin.display(description="name", ordering="name")
    def lock(self, row: HeldLock) -> SafeString:
        url = reverse("admin:django_redlock_heldlock_change", args=[quote(row.pk)], current_app=self.admin_site.name)
        return format_html('<a href="{}" class="redlock-name">{}</a>', url, row.name)

    @admin.display(ordering="kind")
    def kind(self, row: HeldLock) -> str:
        return row.held.kind

    @admin.display(ordering="holder")
    def holder(self, row: HeldLock) -> SafeString:
        owner = row.held.owner
        if not owner.host:
            return format_html("<span>{}</span>", owner.label or UNKNOWN)
        parts = [owner.task or owner.thread, owner.label, *(f"{key}={value}" for key, value in owner.extra.items())]
        rest = " · ".join(part for part in parts if part)
        return format_html(
            '<span>{} <span class="quiet">pid</span> {}</span><small>{}</small>', owner.host, owner.pid, rest
        )

    @admin.display(description="held for", ordering="-since")
    def since(self, row: HeldLock) -> SafeString | str:
        return moment(row.held.owner.since) if row.held.owner.since else UNKNOWN

    @admin.display(description="lease left", ordering="ttl")
    def left(self, row: HeldLock) -> SafeString:
        return bar(row.held.ttl, ttl_of(row.alias))

    @admin.display(ordering="waiters")
    def waiters(self, row: HeldLock) -> SafeString | str:
        return format_html("<b>{}</b>", row.held.waiters) if row.held.waiters else "0"

    @admin.display(ordering="nodes")
    def nodes(self, row: HeldLock) -> str:
        return str(len(row.held.nodes) or 1)

    def facts(self, row: HeldLock) -> Iterator[tuple[str, Any]]:
        """What the detail page says of the holder, label and value."""
        held, owner = row.held, row.held.owner
        known = [
            ("Kind", held.kind),
            ("Host", owner.host),
            ("Process", owner.pid),
            ("Thread", owner.thread),
            ("Task", owner.task),
            ("Label", owner.label),
            *((str(key), value) for key, value in owner.extra.items()),
            ("Held for", self.since(row)),
            ("Lease left", self.left(row)),
            ("Nodes", format_html_join(", ", "{}", ((node,) for node in held.nodes))),
            ("Token", held.token_prefix and f"{held.token_prefix}…"),
        ]
        return ((label, value) for label, value in known if value not in ("", 0, None))
