"""Settings of a project that has Prometheus switched on."""

from testproject.settings import *  # noqa: F403

REDLOCK_METRICS = ["prometheus"]
