"""The settings of processes that run a command."""

import os

OPTIONS = {"node_timeout": 5}  # the machine may be busy
REDLOCK = {
    alias: {
        "BACKEND": f"django_redlock.backends.{backend}",
        "LOCATION": os.environ["TESTPROJECT_REDIS"],
        "KEY_PREFIX": prefix,
        "OPTIONS": OPTIONS,
    }
    for alias, backend, prefix in (
        ("default", "redis.RedisBackend", "redlock"),
        ("timestamp", "timestamp.TimestampBackend", "timestamp"),
    )
}
INSTALLED_APPS = ["django_redlock"]
