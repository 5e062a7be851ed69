"""The filters beside the list. What they offer is what the stores hold at the moment, with numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.http import HttpRequest

from ..formatting import owners, task_of
from ..handler import locks
from ..models import HeldLock

SCAN = {"10": 10, "100": 100}  # how many times the usual bounds


class AliasFilter(SimpleListFilter):
    """One store only: the others are not asked."""

    title = "store"
    parameter_name = "alias"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(alias, alias) for alias in locks] if len(locks) > 1 else []

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset


class ScanFilter(SimpleListFilter):
    """How far to look; offered where something was left out."""

    title = "how far to look"
    parameter_name = "scan"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        seen = model_admin.get_queryset(request).seen
        if not self.value() and all(each.complete or each.error for each in seen):
            return []
        return [
            (key, f"{model_admin.max_keys * times:,} keys, {model_admin.max_locks * times:,} locks")
            for key, times in SCAN.items()
        ]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset


class ValueFilter(SimpleListFilter):
    """Rows that have one value in common. A row has several where several hold the lock."""

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
    title = "kind"
    parameter_name = "kind"
    values_of = staticmethod(lambda row: {row.held.kind})


class TaskFilter(ValueFilter):
    title = "task"
    parameter_name = "task"
    values_of = staticmethod(lambda row: set(map(task_of, owners(row.held))))


class HostFilter(ValueFilter):
    title = "host"
    parameter_name = "host"
    values_of = staticmethod(lambda row: {owner.host for owner in owners(row.held)})
