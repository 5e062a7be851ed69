"""System checks: of the settings, of a deployment, and of Celery tasks."""

from . import settings, tasks  # noqa: F401  (registers the checks)
