"""The Django app config. It loads the Lua scripts into the lock stores when Django starts, and ignores their errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import PurePath

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

# Seconds: stores that don't reply delay the start of a server by up to this time. Timeouts of sockets are not enough,
# because the resolution of a host's name may hang.
MAX_PREPARE_SECONDS = 0.5
SERVERS = {"daphne", "granian", "gunicorn", "hypercorn", "mod_wsgi", "mod_wsgi-express", "uvicorn", "uwsgi", "waitress"}
SERVERS |= {"pyuwsgi", "waitress-serve"}
COMMANDS = {"celery", "django", "django-admin", "manage"}
SERVING = {"beat", "db_worker", "runserver", "worker"}  # the subcommands of COMMANDS that serve or work


class RedlockConfig(AppConfig):
    """The config of the app ``django_redlock``. It sets up system checks, Lua scripts and metrics."""

    name = "django_redlock"
    verbose_name = "Locks"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, read and hash every Lua script, and switch on the metrics.

        In a web server or a worker, the scripts are also loaded into the lock stores that reply. Any other process,
        such as a test run, a type checker or ``migrate``, opens its first connection for its first lock. Raises
        ``ImproperlyConfigured`` for a bad ``REDLOCK_METRICS``.
        """
        from .checks import settings  # noqa: F401  (registers the system checks)
        from .core.flow.scripts import all_scripts

        all_scripts()
        watch()
        if is_serving(sys.argv):
            prepare()


def watch() -> None:
    """Switch on the exporters that ``REDLOCK_METRICS`` names. Raises ``ImproperlyConfigured`` for a bad setting."""
    from .metrics import install

    try:
        install(getattr(settings, "REDLOCK_METRICS", ()) or ())
    except (TypeError, ValueError, ImportError) as error:
        raise ImproperlyConfigured(f"REDLOCK_METRICS: {error}") from error


def is_serving(argv: Sequence[str]) -> bool:
    """Return whether ``argv`` is the command line of a web server or a worker that this package knows."""
    program, *arguments = argv or [""]
    path = PurePath(program)
    name = path.parent.name if path.stem == "__main__" else path.stem
    return name in SERVERS or (name in COMMANDS and not SERVING.isdisjoint(arguments))


def prepare(patience: float = MAX_PREPARE_SECONDS) -> None:
    """Load the Lua scripts into every configured lock store that replies within ``patience`` seconds. Never raises.

    Afterwards no connection is open and, unless a store hangs, no thread runs, so that a server can fork its workers. A
    missing script is loaded by the first lock that needs it.
    """
    from .backend_registry import locks
    from .core.events import logger
    from .core.process.fork import run_postponing
    from .core.process.threads import Kind, start

    try:
        backends = [locks[alias] for alias in locks]
    except Exception as error:  # noqa: BLE001  (the system check and the first use report the error)
        logger.warning("no lock store was prepared: %s", error)
        return

    def load() -> None:
        for backend in backends:
            try:
                backend.prepare()
                backend.close()
            except Exception:
                logger.exception("the scripts of store %r could not be loaded", backend.alias)

    # The backends are imported before the thread starts: an import in the thread could wait for an import lock of ours.
    if (thread := start(Kind.CALL, run_postponing, load)) is not None:
        thread.join(patience)
