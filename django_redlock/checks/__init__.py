"""System checks: of the settings, and of a deployment."""

from . import settings  # noqa: F401  (registers the checks)
