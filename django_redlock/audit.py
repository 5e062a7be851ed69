"""The audit trail of force releases: the log, and the admin's ``LogEntry`` table."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model

from .core.events import logger
from .formatting import age, duration, owners
from .models import HeldLock


def log_force_release(row: HeldLock, username: str, user: Any = None, where: str = "") -> None:
    """Log that ``username`` released the lock ``row`` by force, and add a ``LogEntry`` if the admin is installed.

    ``user``: the Django user of the ``LogEntry``; ``None`` means the user named ``username``. If no user has this name,
    no ``LogEntry`` is added. ``where``: the place of the release, such as ``on host1``, for the message of the
    ``LogEntry``. Database errors are logged and not raised, because the lock has been released.
    """
    held = row.held
    holders = ", ".join(map(str, owners(held)))
    seconds = age(held.owner)
    how_long = f" for {duration(seconds)}" if seconds is not None else ""
    token = f"; token {held.token_prefix}…" if held.token_prefix else ""
    by = f" by {username} {where}".rstrip() if where else ""
    message = f"Released by force{by}. Held by {holders}{how_long}{token}"
    logger.warning("lock %r in %r was released by force by %s: held by %s", held.name, row.alias, username, holders)
    if not (apps.is_installed("django.contrib.admin") and apps.is_installed("django.contrib.auth")):
        return
    from django.contrib.admin.models import DELETION, LogEntry  # the import fails if the app is not installed

    try:
        if user is None:
            user = get_user_model().objects.get_by_natural_key(username)
        LogEntry.objects.log_actions(user.pk, [row], DELETION, message)
    except get_user_model().DoesNotExist:
        logger.info("no LogEntry for lock %r: there is no user %r", held.name, username)
    except Exception as error:  # noqa: BLE001  (also of a user model whose names are no text)
        logger.warning("no LogEntry for the release of lock %r: %s", held.name, error)
