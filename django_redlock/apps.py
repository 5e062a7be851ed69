"""The Django app config. No lock store is asked when Django starts: a process connects at its first lock."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


class RedlockConfig(AppConfig):
    """The config of the app ``django_redlock``: system checks, Lua scripts and metrics are set up at the start."""

    name = "django_redlock"
    verbose_name = "Locks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, read and hash every Lua script, and switch on the metrics.

        Raises ``ImproperlyConfigured`` for a bad ``REDLOCK_METRICS``.
        """
        from .checks import settings  # noqa: F401  (registers the system checks)
        from .core.flow.scripts import all_scripts

        all_scripts()
        watch()


def watch() -> None:
    """Switch on the exporters that ``REDLOCK_METRICS`` names. Raises ``ImproperlyConfigured`` for a bad setting."""
    from .metrics import install

    try:
        install(getattr(settings, "REDLOCK_METRICS", ()) or ())
    except (TypeError, ValueError, ImportError) as error:
        raise ImproperlyConfigured(f"REDLOCK_METRICS: {error}") from error
