"""What the list shows of a lock. All of it is other people's text: nothing here is marked safe but our own markup."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as urlquote
from urllib.parse import urlencode

from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.exceptions import ImproperlyConfigured
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from ..formatting import age, duration, others
from ..handler import locks
from ..templatetags.redlock import moment

if TYPE_CHECKING:
    from django.utils.safestring import SafeString

    from ..models import HeldLock

UNKNOWN = "unknown"
MINUTE = 60  # seconds, which live.js counts down


def bar(left: float | None, full: float) -> SafeString:
    """The lease as a bar that runs down, ``full`` seconds wide. Below a third of that it is marked."""
    if left is None:
        return format_html('<span class="redlock-bad">{}</span>', "no end")
    full = max(full, left)
    numbers = f"{full:.3f}", f"{left:.3f}"
    progress = format_html('<progress max="{}" value="{}" aria-label="Lease left"></progress>', *numbers)
    mark = "redlock-left redlock-low" if left < full / 3 else "redlock-left"
    text = duration(left) if left > MINUTE else f"{math.ceil(left)} s"
    return format_html('<span class="{}">{} <span>{}</span></span>', mark, progress, text)


def nodes_of(alias: str) -> int:
    """How many independent nodes the store has."""
    try:
        return len(getattr(locks[alias], "nodes", ())) or 1
    except ImproperlyConfigured:
        return 1


def result_page(task_id: Any) -> str:
    """Where the result of a task can be seen: in Flower, or in the admin of django-celery-results; else ``""``."""
    if flower := getattr(settings, "REDLOCK_FLOWER_URL", ""):
        return f"{flower.rstrip('/')}/task/{urlquote(str(task_id), safe='')}"
    if apps.is_installed("django_celery_results"):
        return f"{reverse('admin:django_celery_results_taskresult_changelist')}?{urlencode({'task_id': task_id})}"
    return ""


class Columns:
    """The columns of the list and the lines of the detail page."""

    admin_site: Any

    @admin.display(description="name", ordering="name")
    def lock(self, row: HeldLock) -> SafeString:
        url = reverse("admin:django_redlock_heldlock_change", args=[quote(row.pk)], current_app=self.admin_site.name)
        where = f"{row.held.kind} in {row.alias}"
        return format_html('<a href="{}" class="redlock-name">{}</a><small>{}</small>', url, row.name, where)

    @admin.display(ordering="holder")
    def holder(self, row: HeldLock) -> SafeString:
        owner = row.held.owner
        if not owner.host:
            return format_html("<span>{}</span>", owner.label or UNKNOWN)
        parts = [owner.task or owner.thread, owner.label, *(f"{key}={value}" for key, value in owner.extra.items())]
        rest = " · ".join(part for part in (*parts, others(row.held)) if part)
        return format_html(
            '<span>{} <span class="quiet">pid</span> {}</span><small>{}</small>', owner.host, owner.pid, rest
        )

    @admin.display(description="held for", ordering="held")
    def held_for(self, row: HeldLock) -> SafeString | str:
        since = row.held.owner.since
        return moment(since) if since else UNKNOWN

    @admin.display(description="lease left", ordering="ttl")
    def left(self, row: HeldLock) -> SafeString:
        """The rest of the lease as a bar, as wide as the lease; where its length is unknown, as the store's ttl."""
        left, known, held_for = row.held.remaining, row.held.ttl, age(row.held.owner)
        usual = locks[row.alias].ttl
        return bar(left, known or (usual if held_for is None else min(usual, (left or 0.0) + held_for)))

    @admin.display(ordering="waiters")
    def waiters(self, row: HeldLock) -> SafeString | str:
        return format_html("<b>{}</b>", row.held.waiters) if row.held.waiters else "0"

    @admin.display(ordering="nodes", empty_value="")
    def nodes(self, row: HeldLock) -> SafeString | str:
        """How many of the store's nodes know this holding, if it has several. Marked when some do not."""
        held, total = len(row.held.nodes) or 1, nodes_of(row.alias)
        if total == 1:
            return ""
        return f"{held}/{total}" if held >= total else format_html('<b class="redlock-bad">{}/{}</b>', held, total)

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
            *((str(key), self.detail(str(key), value)) for key, value in owner.extra.items()),
            ("Held for", self.held_for(row)),
            ("Lease left", self.left(row)),
            ("Lease", held.ttl and duration(held.ttl)),
            ("Nodes", format_html_join(", ", "{}", ((node,) for node in held.nodes))),
            ("Token", held.token_prefix and f"{held.token_prefix}…"),
        ]
        return ((label, value) for label, value in known if value not in ("", 0, None))

    def detail(self, key: str, value: Any) -> Any:
        """What an owner says beside the usual: a task's id leads to its result where there is a page for it."""
        url = result_page(value) if key == "task_id" else ""
        return format_html('<a href="{}">{}</a>', url, value) if url else value
