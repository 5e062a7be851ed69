"""Deployment checks: settings that are harmless in development and dangerous in production.

``check --deploy``, ``redlock_check --deploy`` and the admin's health page show them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from ..backend_registry import is_redis_cache, locks
from ..backends.base import Backend
from ..backends.dummy import DummyBackend
from ..backends.locmem import LocMemBackend
from ..client.urls import canonical_url, split_url

SHORT = 3.0  # seconds: a shorter lease is renewed more than once a second, and a busy process can stall for a second

HealthRows = Sequence[Mapping[str, Any]]


class Caution(NamedTuple):
    """A warning about one store.

    ``id``: the id of the system check, for ``SILENCED_SYSTEM_CHECKS``. ``sentence``: what is wrong, without the store
    as its subject. ``hint``: the remedy.
    """

    id: str
    sentence: str
    hint: str


def cautions(backend: Backend, rows: HealthRows) -> Iterator[Caution]:
    """Yield warnings about ``backend`` for use in production. ``rows``: the result of its ``health()``."""
    if isinstance(backend, DummyBackend):
        sentence = "is the dummy backend: it grants every lock to every caller."
        yield Caution("redlock.W001", sentence, "It is for tests.")
    if isinstance(backend, LocMemBackend):
        sentence = "keeps its locks in one process: other processes don't see them."
        yield Caution("redlock.W002", sentence, "It is for tests and development.")
    for scheme, place, _ in _places(backend.location):
        host = place.hostname
        if scheme.partition("+")[0] != "redis" or host is None or _is_here(host):
            continue
        yield Caution(
            "redlock.W007",
            f"speaks to {host} without TLS.",
            "Anyone who can read the traffic gets the password, and the tokens, which can release locks. Use rediss:// "
            "(rediss+sentinel://, rediss+cluster://), or silence this check in a private network.",
        )
    if backend.ttl < SHORT:
        yield Caution(
            "redlock.W008",
            f"has a ttl of {backend.ttl:g} s: a process that is stopped for two thirds of that loses its locks.",
            f"Renewal keeps a lock for as long as its holder lives: {SHORT:g} s or more cost nothing except a longer "
            "wait after a crash.",
        )
    if not getattr(backend, "quarantine", False):
        yield from _cautions_without_quarantine(backend, rows)


def _cautions_without_quarantine(backend: Backend, rows: HealthRows) -> Iterator[Caution]:
    for node in (row["node"] for row in rows if row.get("persistence") == "off"):
        yield Caution(
            "redlock.W009",
            f"has no persistence on {node}, and no quarantine: a restart gives away locks that are held.",
            "Set appendonly yes on the server, or quarantine=True in OPTIONS (not for a Cluster or TimestampBackend).",
        )
    places = _databases(backend.location)
    for alias, cache in getattr(settings, "CACHES", {}).items():
        if is_redis_cache(cache) and places & _databases(cache.get("LOCATION")):
            yield Caution(
                "redlock.W011",
                f"is on the Redis database of CACHES[{alias!r}]: clear() of that cache removes the locks that are "
                "held.",
                "Caches on Redis flush the whole database. Give the locks a database of their own, or silence this "
                "check if nothing calls clear().",
            )


def _places(location: Any) -> Iterator[tuple[str, SplitResult, str]]:
    """Yield scheme, address, and number of the database for each host in a LOCATION.

    For ``cache:<alias>``, these are the hosts of this cache in CACHES.
    """
    if isinstance(location, list | tuple):
        for each in location:
            yield from _places(each)
    elif isinstance(location, str) and location.startswith("cache:"):
        yield from _places(settings.CACHES.get(location.removeprefix("cache:"), {}).get("LOCATION"))
    elif isinstance(location, str):
        scheme, netloc, path = split_url(canonical_url(location))
        for host in netloc.rpartition("@")[2].split(","):
            yield scheme, urlsplit(f"//{host.strip()}"), path.partition("?")[0] or "0"


def _databases(location: Any) -> set[tuple[str | None, int, str]]:
    """Return host, port and number of each Redis database in a LOCATION. Databases behind Sentinels are left out."""
    return {
        (place.hostname, place.port or 6379, database)
        for scheme, place, database in _places(location)
        if scheme in ("redis", "rediss")
    }


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


ALWAYS = {"redlock.W011"}  # dangerous in development, too


def deployment(alias: str, rows: list[dict[str, Any]], *, in_production: bool = True) -> list[dict[str, Any]]:
    """Return the deployment warnings about the store ``alias``, as a list with one row like those of ``health()``.

    Returns ``[]`` if there are no warnings. Warnings in SILENCED_SYSTEM_CHECKS are left out.
    ``rows``: the result of the store's ``health()``. ``in_production``: if false, only the warnings in `ALWAYS`.
    """
    try:
        found = cautions(locks[alias], rows)
    except ImproperlyConfigured:
        return []  # health() reports the bad setting
    warnings = [
        f"{each.sentence} {each.hint} ({each.id})"
        for each in found
        if (in_production or each.id in ALWAYS) and each.id not in settings.SILENCED_SYSTEM_CHECKS
    ]
    return [{"node": "settings", "ok": True, "problems": [], "warnings": warnings}] if warnings else []
