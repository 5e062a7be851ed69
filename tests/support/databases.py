"""Databases of a test's own: SQLite files, which many threads can use at once as they would use any server, and
databases of a real PostgreSQL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.db import connections

from tests.support.postgres import USER, Postgres


@contextlib.contextmanager
def sqlite_file(alias: str, path: Path, **options: Any) -> Iterator[str]:
    """The database alias `alias` in a file, for every thread. Transactions begin when they write.

    Threads close their own connections.
    """
    with _alias(alias, sqlite_settings(path), **options):
        yield alias


@contextlib.contextmanager
def postgres_database(alias: str, server: Postgres, name: str, **options: Any) -> Iterator[str]:
    """The database alias `alias` in a new database `name` of the server, for every thread. It is dropped at the end."""
    import psycopg  # not for those who use SQLite alone

    with psycopg.connect(**_server(server), dbname=USER, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            with _alias(alias, postgres_settings(server.port, name), **options):
                yield alias
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def sqlite_settings(path: Path) -> dict[str, Any]:
    """What DATABASES says of a file."""
    pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"
    options = {"timeout": 20, "transaction_mode": "DEFERRED", "init_command": pragmas}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": options}


def postgres_settings(port: int, name: str) -> dict[str, Any]:
    """What DATABASES says of a database of a `Postgres`."""
    return {"ENGINE": "django.db.backends.postgresql", "NAME": name, "HOST": "127.0.0.1", "PORT": port, "USER": USER}


def _server(server: Postgres) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": server.port, "user": USER}


@contextlib.contextmanager
def _alias(alias: str, settings: dict[str, Any], **options: Any) -> Iterator[None]:
    defaults = {**connections.settings["default"], "OPTIONS": {}, "CONN_MAX_AGE": 0}
    connections.settings[alias] = {**defaults, **settings, **options}
    try:
        yield
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]
