"""Force release: shows the holders, asks for confirmation, releases the locks and logs each release.

The form contains a digest of the holders of each lock. A lock whose holders have changed when the form is confirmed is
not released. For a semaphore or a read-write lock with several holders, the operator chooses holders, and the form
contains a digest of each holder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext, gettext_lazy

from ..audit import log_force_release
from ..backend_registry import locks
from ..core.owner import Owner
from ..errors import LockError
from ..formatting import owners, printable, state_of
from ..models import HeldLock, parse_pk
from ..store_queries import explain, find_lock


@admin.action(permissions=["delete"], description=gettext_lazy("Release by force …"))
def force_release(model_admin: Any, request: HttpRequest, queryset: Any) -> HttpResponse:  # noqa: ARG001
    """Ask for confirmation to release the selected locks by force. An action of the admin's list."""
    return ask(model_admin, request, request.POST.getlist("_selected_action"))


def ask(model_admin: Any, request: HttpRequest, pks: Iterable[str]) -> HttpResponse:
    """Return the page that asks for confirmation to release the locks ``pks``; a redirect if no lock is held."""
    shown = []
    for pk in pks:
        alias, name = parse_pk(pk)
        try:
            row = find_lock(alias, name)
        except (LockError, ImproperlyConfigured) as error:
            text = gettext("Lock %(name)s: %(error)s") % {"name": printable(name), "error": explain(error)}
            model_admin.message_user(request, text, messages.ERROR)
            continue
        if row is None:
            text = gettext("Lock %(name)s has no holder any more.") % {"name": printable(name)}
            model_admin.message_user(request, text, messages.INFO)
        else:
            link = model_admin.link(row, row.name)  # a shortened name might hide which lock it is
            shown.append((row, link, model_admin.holder(row), model_admin.held_for(row), meaning(row), choices(row)))
    if not shown:
        return HttpResponseRedirect(model_admin.list_url())
    context = {"title": gettext("Release by force?"), "shown": shown}
    response: HttpResponse = model_admin.page(request, "force_release", context)
    return response


def choices(row: HeldLock) -> list[tuple[str, Owner]]:
    """Return the digest and the owner for each holder of a lock with several holders."""
    held = row.held
    several = held.kind in ("semaphore", "rwlock") and len(held.digests) > 1
    return list(zip(held.digests, held.holders, strict=True)) if several else []


def meaning(row: HeldLock) -> str:
    """Return a sentence about the effect of a force release on this lock."""
    held, several = row.held, len(owners(row.held)) > 1
    if held.kind == "task":
        if state_of(held.owner) == "queued":
            return gettext("The record is deleted. The message may still be in the queue, and the task may still run.")
        return gettext("The task continues. Another call of the task may run at the same time.")
    if choices(row):
        return gettext("The chosen holders lose the lock. The others keep it.")
    if several:
        return gettext("All %(count)d holders lose the lock.") % {"count": len(owners(held))}
    return gettext("The next waiter gets the lock.") if held.waiters else gettext("The lock is free.")


def carry_out(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Release the locks of the confirmed form whose holders have not changed. Returns a redirect to the list."""
    holdings = request.POST.getlist("holding")
    if not holdings:
        model_admin.message_user(request, gettext("No holder was chosen: nothing was released."), messages.WARNING)
    for holding in holdings:
        digest, _, pk = holding.partition(":")
        level, text = _release(request, pk, digest)
        model_admin.message_user(request, text, level)
    return HttpResponseRedirect(model_admin.list_url())


def _release(request: HttpRequest, pk: str, digest: str) -> tuple[int, str]:
    """Release one lock. Returns a message about it for ``django.contrib.messages``: level and text."""
    alias, name = parse_pk(pk)
    shown = printable(name)
    try:
        row = find_lock(alias, name)
        if row is None:
            return messages.INFO, gettext("Lock %(name)s was free already.") % {"name": shown}
        released = _released(row, digest)
        if released is None or not locks[alias].force_release(name, digest, str(request.user)):
            text = gettext("Lock %(name)s has a new holder since the page was shown: it was not released.")
            return messages.WARNING, text % {"name": shown}
    except (LockError, ImproperlyConfigured) as error:
        text = gettext("Lock %(name)s may not have been released: %(error)s")
        return messages.ERROR, text % {"name": shown, "error": explain(error)}
    log_force_release(released, str(request.user), request.user)
    text = gettext("Lock %(name)s was released. It was held by %(holders)s.")
    text %= {"name": shown, "holders": _names(released)}
    return messages.SUCCESS, f"{text} {_second_look(alias, name)}".rstrip()


def _released(row: HeldLock, digest: str) -> HeldLock | None:
    """Return ``row`` with only the holders to which ``digest`` belongs; ``None`` if the holders have changed."""
    held = row.held
    if digest == held.digest:
        return row
    chosen = [owner for each, owner in zip(held.digests, held.holders, strict=False) if each == digest]
    return HeldLock.of(row.alias, replace(held, owner=chosen[0], holders=tuple(chosen))) if chosen else None


def _second_look(alias: str, name: str) -> str:
    """Return a sentence with the present holders of a lock; ``""`` if it is free or the store is unavailable."""
    try:
        now = find_lock(alias, name)
    except (LockError, ImproperlyConfigured):
        return ""
    return gettext("It is now held by %(holders)s.") % {"holders": _names(now)} if now else ""


def _names(row: HeldLock) -> str:
    return ", ".join(map(str, owners(row.held)))
