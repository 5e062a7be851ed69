"""Databases for single tests: SQLite files, which many threads can use like a database server, and databases of
PostgreSQL and MariaDB.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from django.db import connections

from tests.support.mariadb import MariaDB
from tests.support.postgres import USER, Postgres


def routed(write: str, read: str | None = None) -> SimpleNamespace:
    """Return a database router that sends all models to the database `write`, and reads to `read`, if it is given."""
    return SimpleNamespace(db_for_read=lambda *_, **__: read or write, db_for_write=lambda *_, **__: write)


@contextlib.contextmanager
def sqlite_file(alias: str, path: Path, **options: Any) -> Iterator[str]:
    """Context manager with a database alias for a SQLite file, for all threads, which close their own connections."""
    with _alias(alias, sqlite_settings(path), **options):
        yield alias


@contextlib.contextmanager
def postgres_database(alias: str, server: Postgres, name: str, **options: Any) -> Iterator[str]:
    """Context manager with an alias for a new PostgreSQL database `name`, for all threads. Drops it at the end."""
    import psycopg  # imported here because tests with SQLite alone don't need it

    with psycopg.connect(**_server(server), dbname=USER, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            with _alias(alias, postgres_settings(server.port, name), **options):
                yield alias
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextlib.contextmanager
def mariadb_database(alias: str, server: MariaDB, name: str, **options: Any) -> Iterator[str]:
    """Context manager with a database alias for a new MariaDB database `name`, for all threads. Drops it at the end."""
    import pymysql  # pure Python, and takes the place of mysqlclient

    pymysql.install_as_MySQLdb()
    server.query(f"CREATE DATABASE `{name}`")
    entry = {"ENGINE": "django.db.backends.mysql", "NAME": name, "HOST": "127.0.0.1", "PORT": server.port}
    try:
        with _alias(alias, entry | {"USER": USER}, **options):
            yield alias
    finally:
        server.query(f"DROP DATABASE `{name}`")


def sqlite_settings(path: Path) -> dict[str, Any]:
    pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"
    options = {"timeout": 20, "transaction_mode": "DEFERRED", "init_command": pragmas}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": options}


def postgres_settings(port: int, name: str) -> dict[str, Any]:
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
