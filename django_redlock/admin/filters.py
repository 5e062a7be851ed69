"""The filters in the sidebar of the admin's list. They offer the values that the listed locks have, with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from ..backend_registry import locks
from ..formatting import owners, state_of, task_of
from ..models import HeldLock

SCAN = {"10": 10, "100": 100}  # values of the parameter "scan": factors for max_keys and max_locks


class _ReadByAdmin(SimpleListFilter):
    """A filter whose URL parameter `HeldLockAdmin` reads. Without lookups it is not in the sidebar: links set it."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return []

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset


class AliasFilter(_ReadByAdmin):
    """A filter by store. `HeldLockAdmin.get_queryset` asks the chosen store only."""

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
    """A filter by a property of the locks, such as the host of the holder.

    ``values_of`` returns the values that a row has of this property: several if the lock has several holders.
    """

    values_of: Callable[[HeldLock], set[str]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        counted = Counter(chain.from_iterable(map(type(self).values_of, model_admin.get_queryset(request))))
        if chosen := self.value():
            counted[chosen] += 0
        return [(value, f"{value} ({number})") for value, number in sorted(counted.items()) if value]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        chosen, values_of = self.value(), type(self).values_of
        return queryset.where(lambda row: chosen in values_of(row)) if chosen else queryset


class KindFilter(ValueFilter):
    title = gettext_lazy("kind")
    parameter_name = "kind"
    values_of = staticmethod(lambda row: {row.held.kind})


class StateFilter(ValueFilter):
    title = gettext_lazy("state")
    parameter_name = "state"
    values_of = staticmethod(lambda row: set(map(state_of, owners(row.held))))


class TaskFilter(ValueFilter):
    title = gettext_lazy("task")
    parameter_name = "task"
    values_of = staticmethod(lambda row: set(map(task_of, owners(row.held))))


class HostFilter(ValueFilter):
    title = gettext_lazy("host")
    parameter_name = "host"
    values_of = staticmethod(lambda row: {owner.host for owner in owners(row.held)})
