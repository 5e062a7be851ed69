"""Databases of a test's own: SQLite files, which many threads can use at once as they would use any server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.db import connections


@contextlib.contextmanager
def sqlite_file(alias: str, path: Path, **options: Any) -> Iterator[str]:
    """The database alias `alias` in a file, for every thread. Transactions begin when they write.

    Threads close their own connections.
    """
    pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"
    connections.settings[alias] = {
        **connections.settings["default"],
        "NAME": str(path),
        "OPTIONS": {"timeout": 20, "transaction_mode": "DEFERRED", "init_command": pragmas},
        "CONN_MAX_AGE": 0,
        **options,
    }
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]
