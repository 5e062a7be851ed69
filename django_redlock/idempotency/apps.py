"""The Django app with the table of `StoredAnswer`. Only the database store needs it in ``INSTALLED_APPS``."""

from __future__ import annotations

from django.apps import AppConfig


class IdempotencyConfig(AppConfig):
    """The app config for ``django_redlock.idempotency`` in ``INSTALLED_APPS``."""

    name = "django_redlock.idempotency"
    label = "redlock_idempotency"
    verbose_name = "Idempotency keys"
    default_auto_field = "django.db.models.BigAutoField"
