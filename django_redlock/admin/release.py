"""Force release: shows who holds what and asks; then releases those that have not changed hands, and logs each.

The form carries the digest of each holding that was shown, so that nobody is released whom the user has not seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from ..audit import log_force_release
from ..errors import LockError
from ..formatting import others
from ..handler import locks
from ..inspection import explain, find_lock
from ..models import parse_pk


@admin.action(permissions=["delete"], description="Release by force …")
def force_release(model_admin: Any, request: HttpRequest, queryset: Any) -> HttpResponse:  # noqa: ARG001
    """The action of the list."""
    return ask(model_admin, request, request.POST.getlist("_selected_action"))


def ask(model_admin: Any, request: HttpRequest, pks: Iterable[str]) -> HttpResponse:
    """The page that shows the holders and asks."""
    rows = []
    for pk in pks:
        name = parse_pk(pk)[1]
        try:
            row = find_lock(pk)
        except (LockError, ImproperlyConfigured) as error:
            model_admin.message_user(request, f"Lock {name}: {explain(error)}", messages.ERROR)
            continue
        if row is None:
            model_admin.message_user(request, f"Lock {name} is held by nobody any more.", messages.INFO)
        else:
            rows.append(row)
    if not rows:
        return HttpResponseRedirect(model_admin.list_url())
    columns = model_admin.lock, model_admin.holder, model_admin.held_for
    shown = [(f"{row.held.digest}:{row.pk}", row, *(column(row) for column in columns)) for row in rows]
    response: HttpResponse = model_admin.page(request, "force_release", {"title": "Release by force?", "shown": shown})
    return response


class Outcome(NamedTuple):
    """What became of one lock, for the user."""

    level: int
    text: str


def carry_out(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Release what the form names, if it is still held by those whom the form showed."""
    for holding in request.POST.getlist("holding"):
        digest, _, pk = holding.partition(":")
        level, text = _release(request, pk, digest)
        model_admin.message_user(request, text, level)
    return HttpResponseRedirect(model_admin.list_url())


def _release(request: HttpRequest, pk: str, digest: str) -> Outcome:
    alias, name = parse_pk(pk)
    try:
        row = find_lock(pk)
        if row is None:
            return Outcome(messages.INFO, f"Lock {name} was free already.")
        if row.held.digest != digest or not locks[alias].force_release(name, digest, str(request.user)):
            return Outcome(messages.WARNING, f"Lock {name} has changed hands since you looked: it was not released.")
    except (LockError, ImproperlyConfigured) as error:
        return Outcome(messages.ERROR, f"Lock {name} may not have been released: {explain(error)}")
    log_force_release(row, str(request.user), request.user)
    holders = f"{row.held.owner} {others(row.held)}".rstrip()
    return Outcome(messages.SUCCESS, f"Lock {name} was released. It was held by {holders}.")
