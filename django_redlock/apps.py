"""The Django app: prepares the scripts when the app is ready, quickly and never fatally."""

from __future__ import annotations

import sys
import threading

from django.apps import AppConfig

# Commands that serve requests or tasks, or lock by themselves; the others shall not wait for a Redis or need one.
_SERVING = {"runserver", "celery"}


class RedlockConfig(AppConfig):
    """``django_redlock`` in ``INSTALLED_APPS``."""

    name = "django_redlock"
    verbose_name = "Locks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Read and hash every script; load them into the stores in the background where a server process starts."""
        from . import checks  # noqa: F401  (registers the system checks)
        from .core.scripts import all_scripts

        all_scripts()
        managed = len(sys.argv) > 1 and sys.argv[0].endswith(("manage.py", "django-admin", "__main__.py"))
        if not managed or sys.argv[1] in _SERVING:
            threading.Thread(target=prepare, name="redlock-prepare", daemon=True).start()


def prepare() -> None:
    """Load the scripts into each configured store that answers. What does not is left to the first acquire."""
    from .core.events import logger
    from .handler import locks

    for alias in locks:
        try:
            locks[alias].prepare()
        except Exception as error:
            logger.info("the scripts of %r are not loaded yet: %s", alias, error)
