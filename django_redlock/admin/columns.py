"""Formats the columns of the admin's list of locks and the lines of its detail page.

All values are HTML-escaped, because other programs can write to the store.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as urlquote
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy

from ..backend_registry import locks
from ..formatting import added_fields, age, duration, longest_wait, others, owners, printable, shortened, state_of
from ..templatetags.redlock import local_time, moment

if TYPE_CHECKING:
    from django.utils.safestring import SafeString

    from ..models import HeldLock

MINUTE = 60  # seconds; live.js counts down from here
_BADGES = ("state", "mode")
_LABELS = {
    "limit": gettext_lazy("Limit"),
    "max_hold": gettext_lazy("Longest hold allowed"),
    "task_id": gettext_lazy("Task id"),
}
LONGEST_NAME = 22  # characters of a name in the list


def bar(left: float | None, full: float) -> SafeString:
    """Return a progress bar for a lease with ``left`` seconds remaining. The full bar stands for ``full`` seconds.

    The bar is highlighted below a third. ``left`` is ``None`` for a lease without end.
    """
    if left is None:
        return format_html('<span class="redlock-bad">{}</span>', gettext("no end"))
    full = max(full, left)
    text = duration(left) if left > MINUTE else f"{math.ceil(left)} s"
    mark = "redlock-left redlock-low" if left < full / 3 else "redlock-left"
    return format_html(
        '<span class="{}"><progress max="{}" value="{}" aria-label="{}" aria-valuetext="{}"></progress> '
        "<span>{}</span></span>",
        *(mark, f"{full:.3f}", f"{left:.3f}", gettext("Lease left"), text, text),
    )


def badges(row: HeldLock) -> SafeString:
    """Return the kind of a lock and the states of its holders as badges."""
    states = dict.fromkeys(filter(None, map(state_of, owners(row.held))))
    found = [("kind", row.held.kind), *((state, gettext(state)) for state in states)]
    return format_html_join(" ", '<span class="redlock-tag redlock-is-{}">{}</span>', found)


def with_words(before: str, value: Any, after: str = "") -> SafeString:
    """Return ``value`` between two texts that are visible only on a phone, where a row is a card without headings."""
    words = '<span class="redlock-word">{} </span>{}<span class="redlock-word"> {}</span>'
    return format_html(words, before, value, after)


def nodes_of(alias: str) -> int:
    """Return the number of independent nodes of a store."""
    try:
        return len(getattr(locks[alias], "nodes", ())) or 1
    except ImproperlyConfigured:
        return 1


def result_page(task_id: Any, site: str) -> str:
    """Return the URL of a task's result in Flower or in django-celery-results' admin; ``""`` without either."""
    if flower := getattr(settings, "REDLOCK_FLOWER_URL", ""):
        return f"{flower.rstrip('/')}/task/{urlquote(str(task_id), safe='')}"
    try:
        results = reverse("admin:django_celery_results_taskresult_changelist", current_app=site)
    except NoReverseMatch:
        return ""
    return f"{results}?{urlencode({'task_id': task_id})}"


class Columns:
    """The methods of `HeldLockAdmin` that format the columns of the list and the lines of the detail page."""

    admin_site: Any

    @admin.display(description=gettext_lazy("name"), ordering="name")
    def lock(self, row: HeldLock) -> SafeString:
        return self.link(row, shortened(row.name, LONGEST_NAME))

    def link(self, row: HeldLock, name: str) -> SafeString:
        """Return a link with the text ``name`` to the page of a lock, followed by the lock's kind, states and store."""
        url = reverse("admin:django_redlock_heldlock_change", args=[quote(row.pk)], current_app=self.admin_site.name)
        return format_html(
            '<a href="{}" class="redlock-name" title="{}">{}</a><small>{} {}</small>',
            *(url, row.name, name, badges(row), row.alias),
        )

    @admin.display(description=gettext_lazy("holder"), ordering="holder")
    def holder(self, row: HeldLock) -> SafeString:
        owner = row.held.owner
        if not owner.host:
            return format_html("<span>{}</span>", owner.label or gettext("unknown"))
        # What distinguishes a holder comes first, because the end may be cut off.
        parts = others(row.held), owner.label, *added_fields(owner), owner.task or owner.thread
        rest = " · ".join(filter(None, parts))
        return format_html(
            '<span>{} <span class="quiet">pid</span> {}</span><small title="{}">{}</small>',
            *(owner.host, owner.pid, rest, rest),
        )

    @admin.display(description=gettext_lazy("held for"), ordering="held")
    def held_for(self, row: HeldLock) -> SafeString | str:
        return with_words(gettext("for"), self.age(row))

    @admin.display(description=gettext_lazy("queued or running for"), ordering="held")
    def task_age(self, row: HeldLock) -> SafeString | str:
        return self.age(row)

    @admin.display(description=gettext_lazy("lease left"), ordering="ttl")
    def left(self, row: HeldLock) -> SafeString:
        """Return a progress bar of the seconds left of the lease. The full bar stands for the lease's ttl.

        If the ttl is unknown, the full bar stands for the store's default ttl, or for the seconds left plus the seconds
        since ``acquire()`` if their sum is less. For a released lock with ``every=``, return the time until it can be
        acquired again.
        """
        if state_of(row.held.owner) == "done" and row.held.remaining is not None:
            return format_html(gettext("again in {}"), duration(row.held.remaining))
        left, held_for, usual = row.held.remaining, age(row.held.owner), locks[row.alias].ttl
        return bar(left, row.held.ttl or (usual if held_for is None else min(usual, (left or 0.0) + held_for)))

    @admin.display(description=gettext_lazy("record kept for"), ordering="ttl")
    def kept_for(self, row: HeldLock) -> SafeString | str:
        """Return the bar of a running task's lease, or the time until a queued task's record expires."""
        if state_of(row.held.owner) == "running" or row.held.remaining is None:
            return self.left(row)
        return duration(row.held.remaining)

    @admin.display(description=gettext_lazy("waiters"), ordering="waiters")
    def waiters(self, row: HeldLock) -> SafeString | str:
        number = format_html("<b>{}</b>", row.held.waiters) if row.held.waiters else "0"
        return with_words("", number, gettext("waiting"))

    @admin.display(description=gettext_lazy("longest wait"), ordering="wait", empty_value="")
    def wait(self, row: HeldLock) -> str:
        seconds = longest_wait(row.held)
        return "" if seconds is None else with_words(gettext("longest"), duration(seconds))

    @admin.display(description=gettext_lazy("nodes"), ordering="nodes", empty_value="")
    def nodes(self, row: HeldLock) -> SafeString | str:
        """Return the number of nodes that have granted the lock, such as ``2/3``; ``""`` for a store with one node."""
        held, total = len(row.held.nodes) or 1, nodes_of(row.alias)
        if total == 1:
            return ""
        mark = "{}/{}" if held >= total else '<b class="redlock-bad">{}/{}</b>'
        return with_words("", format_html(mark, held, total), gettext("nodes"))

    def age(self, row: HeldLock) -> SafeString | str:
        """Return the time since the holder's ``acquire()``, or since the task was queued."""
        since = row.held.since
        return moment(since) if since else gettext("unknown")

    def facts(self, row: HeldLock, abandoned: bool = False) -> Iterator[tuple[str, Any]]:
        """Return the lines about the holder on the detail page. ``abandoned``: its thread or task has ended."""
        held, owner, backend = row.held, row.held.owner, locks[row.alias]
        key = backend.keys_of(held.name).lock.decode(errors="replace") if hasattr(backend, "nodes") else ""
        queued = state_of(owner) == "queued"
        known = [
            (gettext("Name"), printable(held.name)),  # a theme may not show the title of the page
            (gettext("Kind"), badges(row)),
            (gettext("Redis key"), printable(key)),
            (gettext("Host"), owner.host),
            (gettext("Process"), owner.pid),
            (gettext("Thread"), owner.thread),
            (gettext("Task"), owner.task),
            (gettext("Warning"), abandoned and gettext("the thread or task has ended, and the lock is still renewed")),
            (gettext("Label"), owner.label),
            *(
                (str(_LABELS.get(key, key)), self.detail(str(key), value))
                for key, value in owner.extra.items()
                if key not in _BADGES
            ),
            (gettext("Since"), held.since and local_time(held.since, "Y-m-d H:i:s T")),
            (gettext("Queued for") if queued else gettext("Held for"), self.age(row)),
            (gettext("Record kept for"), self.kept_for(row)) if queued else (gettext("Lease left"), self.left(row)),
            (gettext("Lease"), held.ttl and duration(held.ttl)),
            (gettext("Nodes"), format_html_join(", ", "{}", ((node,) for node in held.nodes))),
            (gettext("Token"), held.token_prefix and f"{held.token_prefix}…"),
        ]
        return ((label, value) for label, value in known if value not in ("", 0, None))

    def detail(self, key: str, value: Any) -> Any:
        """Return ``value``, the owner's field ``key``, for display. A task id links to its `result_page`, if any."""
        if key == "max_hold" and isinstance(value, int | float):
            return duration(value)
        url = result_page(value, self.admin_site.name) if key == "task_id" else ""
        link = '<a href="{}">{}</a> <a class="button" href="{}">{}</a>'
        return format_html(link, url, value, url, gettext("Show task")) if url else value
