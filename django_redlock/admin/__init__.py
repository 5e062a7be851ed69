"""The admin of live locks: list, detail page, force release, health of the stores."""

from __future__ import annotations

import math
from collections import Counter
from copy import copy
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote, unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.forms import Media, Script
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.urls.resolvers import URLPattern
from django.utils.translation import gettext, gettext_lazy

from ..backend_registry import locks
from ..checks.deploy import deployment
from ..errors import LockError
from ..formatting import owners, printable, state_of
from ..history.minutes import MAX_TEXT, HistoryEvent, MinuteStats
from ..models import HeldLock, make_pk, parse_pk
from ..store_queries import explain, find_lock, health, last_hour, node_views
from . import release
from .charts import chart
from .columns import Columns, nodes_of
from .filters import SCAN, AliasFilter, HostFilter, KindFilter, ScanFilter, StateFilter, TabFilter, TaskFilter
from .queryset import LockRows


def shows_tasks(request: HttpRequest) -> bool:
    return request.GET.get("tab") == "tasks"


def query(request: HttpRequest, **changes: Any) -> str:
    """Return the request's query string with the parameters ``changes``, without the page number.

    The value ``""`` removes a parameter.
    """
    parameters = request.GET.copy()
    parameters.pop("p", None)
    for name, value in changes.items():
        parameters.pop(name, None)
        if value:
            parameters[name] = str(value)
    return f"?{parameters.urlencode()}"


@admin.register(HeldLock)
class HeldLockAdmin(Columns, admin.ModelAdmin):  # type: ignore[type-arg]
    """The admin of the live locks (`HeldLock`), with a tab for locks and a tab for tasks. Rows come from `LockRows`.

    By default, locks with waiters come first. Each request scans about ``max_keys`` keys of each store, and lists up to
    ``max_locks`` locks of each store.
    """

    list_display = ["lock", "holder", "held_for", "left", "waiters", "wait"]
    task_display = ["lock", "holder", "task_age", "kept_for"]
    list_display_links = None
    list_filter = [AliasFilter, KindFilter, StateFilter, TaskFilter, HostFilter, ScanFilter, TabFilter]
    list_per_page = 100
    show_facets = admin.ShowFacets.NEVER
    search_fields = ["name"]
    search_help_text = gettext_lazy("Part of a lock's name, case-sensitive. * and ? are wildcards.")
    actions = [release.force_release]
    max_locks = 1000
    max_keys = 20_000
    max_events = 20  # events of the last hour on a page, for each lock or store
    refresh = 5  # seconds after which an open page is refreshed

    # ── permissions ──────────────────────────────────────────────────────────────────────────

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    # ── the list ─────────────────────────────────────────────────────────────────────────────

    @property
    def media(self) -> Media:
        """The package's own style sheet and script. Django's scripts would not find rows that a refresh adds."""
        return Media(css={"all": ["django_redlock/locks.css"]}, js=[Script("django_redlock/live.js", defer=True)])  # type: ignore[list-item]

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Return the columns of the selected tab, with ``nodes`` if any store has several nodes."""
        columns = self.task_display if shows_tasks(request) else self.list_display
        return [*columns, *(["nodes"] if any(nodes_of(alias) > 1 for alias in locks) else [])]

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """Return the default order, locks with waiters first. The attribute ``ordering`` accepts only model fields."""
        return ["trouble", "name"]

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Return the actions of the list, without "delete selected". The form has none (Django 6.1 and later ask)."""
        if getattr(action_location, "name", "") == "CHANGE_FORM":
            return {}
        where: tuple[Any, ...] = () if action_location is None else (action_location,)
        actions = super().get_actions(request, *where)
        actions.pop("delete_selected", None)
        return actions

    def get_queryset(self, request: HttpRequest) -> Any:
        """Return the rows of the selected tab; for a POST, of both tabs. Each store is read once per request."""
        rows: LockRows | None = getattr(request, "_redlock_rows", None)
        if rows is None:
            alias, scope = request.GET.get("alias", ""), SCAN.get(request.GET.get("scan", ""), 1)
            aliases = [alias] if alias in locks else list(locks)
            rows = LockRows.read(aliases, request.GET.get("q", ""), self.max_locks * scope, self.max_keys * scope)
            request._redlock_rows = rows  # type: ignore[attr-defined]
        tasks = shows_tasks(request)
        return rows if request.method == "POST" else rows.where(lambda row: (row.held.kind == "task") is tasks)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Return ``queryset`` unchanged, because the stores have applied the search term."""
        return queryset, False

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Return Django's change list, with "task" in place of "lock" in its texts on the tab of tasks."""
        changes = super().get_changelist_instance(request)
        if shows_tasks(request):
            changes.opts = copy(changes.opts)
            changes.opts.verbose_name, changes.opts.verbose_name_plural = gettext_lazy("task"), gettext_lazy("tasks")
        return changes

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        seen = self.get_queryset(request).seen
        factor = SCAN.get(request.GET.get("scan", ""), 1) * 10
        further = not all(each.complete or each.error for each in seen) and str(factor) in SCAN
        counts = Counter(held.kind == "task" for each in seen for held in each.locks)
        context = {
            "title": gettext("Queued and running tasks") if shows_tasks(request) else gettext("Held locks"),
            "seen": seen,
            "down": [each for each in seen if each.error],
            "nothing_known": any(each.error for each in seen) and not any(each.locks for each in seen),
            "further": query(request, scan=factor) if further else "",
            "tabs": [
                (gettext("Locks"), counts[False], query(request, tab=""), not shows_tasks(request)),
                (gettext("Tasks"), counts[True], query(request, tab="tasks"), shows_tasks(request)),
            ],
            "refresh": self.refresh,
        }
        return super().changelist_view(request, context | (extra_context or {}))

    # ── one lock ─────────────────────────────────────────────────────────────────────────────

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the page of one lock, held or free."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        alias, name = parse_pk(unquote(object_id))
        pk = make_pk(alias, name)  # the address may have the name unquoted
        if alias not in locks or not name:
            raise Http404
        row, error = None, ""
        try:
            row = find_lock(alias, name)
        except (LockError, ImproperlyConfigured) as failure:
            error = explain(failure)
        minutes = [] if error else last_hour(alias, name)
        abandoned = {each.holder for minute in minutes for each in minute.events if each.kind == "abandoned"}
        history = LogEntry.objects.filter(content_type=ContentType.objects.get_for_model(HeldLock), object_id=pk)
        context = {
            "title": printable(name),
            "alias": alias,
            "row": row,
            "error": error,
            "facts": row and self.facts(row, str(row.held.owner)[:MAX_TEXT] in abandoned),
            "queued": row and state_of(row.held.owner) == "queued",
            "holders": row and owners(row.held),
            "queue": row and sorted(row.held.queue, key=lambda owner: owner.since or math.inf),
            "views": node_views(alias, name),
            "chart": chart(minutes),
            "events": [(event, "") for event in self.last_events(minutes)],
            "history": history.select_related("user")[:10],
            "may_release": row and self.has_delete_permission(request),
        }
        return self.page(request, "detail", context | (extra_context or {}))

    history_view = change_view  # type: ignore[assignment]

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the holder, and ask for confirmation to release the lock by force."""
        if not self.has_delete_permission(request):
            raise PermissionDenied
        return release.ask(self, request, [unquote(object_id)])

    # ── more pages ───────────────────────────────────────────────────────────────────────────

    def get_urls(self) -> list[URLPattern]:
        wrap, name = self.admin_site.admin_view, "django_redlock_heldlock"
        return [
            path("health/", wrap(self.health_view), name=f"{name}_health"),
            path("release/", wrap(self.release_view), name=f"{name}_release"),
            *super().get_urls(),
        ]

    def health_view(self, request: HttpRequest) -> HttpResponse:
        """Show the health of each store and node, as `redlock_check --deploy` does, and the events of the last hour."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        stores = []
        for alias in locks:
            nodes = health(alias)
            minutes = last_hour(alias) if any(node["ok"] for node in nodes) else []
            events = [(event, quote(make_pk(alias, event.name))) for event in self.last_events(minutes)]
            stores.append((alias, [*nodes, *deployment(alias, nodes)], chart(minutes), events))
        return self.page(request, "health", {"title": gettext("Health of the lock stores"), "stores": stores})

    def last_events(self, minutes: list[MinuteStats]) -> list[HistoryEvent]:
        """Return the last ``max_events`` events of ``minutes``, the latest first."""
        return [event for minute in reversed(minutes) for event in reversed(minute.events)][: self.max_events]

    def release_view(self, request: HttpRequest) -> HttpResponse:
        """Release the locks of the confirmed form by force. Returns a redirect to the list."""
        if not self.has_delete_permission(request):
            raise PermissionDenied
        return release.carry_out(self, request)

    def page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> TemplateResponse:
        """Return a page of the admin, rendered from ``template``."""
        request.current_app = self.admin_site.name
        shared = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "refresh": self.refresh,
        }
        return TemplateResponse(request, f"admin/django_redlock/heldlock/{template}.html", shared | context)

    def list_url(self) -> str:
        """Return the URL of the list of locks."""
        return reverse("admin:django_redlock_heldlock_changelist", current_app=self.admin_site.name)
