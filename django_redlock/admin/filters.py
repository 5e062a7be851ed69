"""The sidebar filters of the admin's list. Each offers the values of the listed locks, with counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from ..backend_registry import locks
from ..formatting import FILTERS
from ..models import HeldLock

SCAN = {"10": 10, "100": 100}  # values of the parameter "scan": factors for max_keys and max_locks


class _ReadByAdmin(SimpleListFilter):
    """A filter that `HeldLockAdmin` applies. Without lookups it is not in the sidebar: links set its parameter."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return []

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset


class AliasFilter(_ReadByAdmin):
    """A filter by store. `HeldLockAdmin.get_queryset` reads only the chosen store."""

    title = gettext_lazy("store")
    parameter_name = "alias"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(alias, alias) for alias in locks] if len(locks) > 1 else []


class ScanFilter(_ReadByAdmin):
    title = gettext_lazy("keys to read")
    parameter_name = "scan"


class TabFilter(_ReadByAdmin):
    title = gettext_lazy("tab")
    parameter_name = "tab"


class ValueFilter(SimpleListFilter):
    """A filter by a property of the locks, such as the host of the holder. It counts the locks with each value."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        counted = Counter(value for row in model_admin.get_queryset(request) for value in self._values(row))
        if chosen := self.value():
            counted[chosen] += 0
        return [(value, f"{value} ({number})") for value, number in sorted(counted.items()) if value]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        chosen = self.value()
        return queryset.where(lambda row: chosen in self._values(row)) if chosen else queryset

    def _values(self, row: HeldLock) -> set[str]:
        return FILTERS[str(self.parameter_name)](row.held)


class KindFilter(ValueFilter):
    title, parameter_name = gettext_lazy("kind"), "kind"


class StateFilter(ValueFilter):
    title, parameter_name = gettext_lazy("state"), "state"


class TaskFilter(ValueFilter):
    title, parameter_name = gettext_lazy("task"), "task"


class HostFilter(ValueFilter):
    title, parameter_name = gettext_lazy("host"), "host"
