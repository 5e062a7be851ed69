"""Deployment checks: settings that are harmless in development and dangerous in production.

``check --deploy``, ``redlock_check --deploy`` and the admin's health page show them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from ..backend_registry import is_redis_cache, locks
from ..backends.base import Backend
from ..backends.dummy import DummyBackend
from ..backends.locmem import LocMemBackend
from ..backends.redlock import RedlockBackend
from ..client.urls import canonical_url, split_url

SHORT = 3.0  # seconds: a shorter lease is renewed more than once a second, and a busy process can stall for a second
_PLAIN = ("redis", "redis+sentinel", "redis+cluster")

HealthRows = Sequence[Mapping[str, Any]]


class Caution(NamedTuple):
    """A warning about one store.

    ``id``: the id of the system check, for ``SILENCED_SYSTEM_CHECKS``. ``sentence``: what is wrong, without the store
    as its subject. ``hint``: the remedy.
    """

    id: str
    sentence: str
    hint: str


class DeployRule(NamedTuple):
    """A rule of the deployment checks. ``number``: the end of the id of the system check, such as ``W001``.

    ``find``: a function of the backend and the result of its ``health()``. It returns one value for each warning.
    ``sentence`` and ``hint``: as in `Caution`; in ``sentence``, the value replaces ``{}``.
    """

    number: str
    find: Callable[[Backend, HealthRows], Iterable[Any]]
    sentence: str
    hint: str


def cautions(backend: Backend, rows: HealthRows) -> list[Caution]:
    """Return the warnings about ``backend`` if it is used in production. ``rows``: the result of its ``health()``."""
    return [
        Caution(f"redlock.{rule.number}", rule.sentence.format(found), rule.hint)
        for rule in RULES
        for found in rule.find(backend, rows)
    ]


def _when(condition: bool, value: Any = "") -> list[Any]:
    return [value] if condition else []


def _in_plain_text(backend: Backend, _rows: HealthRows) -> Iterator[str]:
    """Yield the hosts, other than this machine, that ``backend`` reaches without TLS."""
    for location in _urls(backend.location):
        scheme, netloc, _ = split_url(canonical_url(location))
        if scheme in _PLAIN:
            hosts = (urlsplit(f"//{place.strip()}").hostname for place in netloc.rpartition("@")[2].split(","))
            yield from (host for host in hosts if host and not _is_here(host))


def _urls(location: Any) -> list[str]:
    """Return all URLs in a LOCATION. ``cache:<alias>`` stands for the URLs of that cache in CACHES."""
    if isinstance(location, list | tuple):
        return [url for each in location for url in _urls(each)]
    if not isinstance(location, str):
        return []
    if location.startswith("cache:"):
        return _urls(settings.CACHES.get(location.removeprefix("cache:"), {}).get("LOCATION"))
    return [location]


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _forgetful(backend: Backend, rows: HealthRows) -> Iterator[str]:
    """Yield the names of the servers that lose all data at a restart. Yields none for a store with a quarantine."""
    if not getattr(backend, "quarantine", False):
        yield from (row["node"] for row in rows if row.get("persistence") == "off")


def _flushed(backend: Backend, _rows: HealthRows) -> Iterator[str]:
    """Yield the caches on a database with locks of ``backend``. Yields none for a store with a quarantine."""
    if not getattr(backend, "quarantine", False):
        places = _databases(backend.location)
        for alias, cache in getattr(settings, "CACHES", {}).items():
            if is_redis_cache(cache) and places & _databases(cache.get("LOCATION")):
                yield alias


def _databases(location: Any) -> set[tuple[str | None, int, str]]:
    """Return host, port and number of the databases in a LOCATION. Databases behind Sentinels are left out."""
    found = set()
    for url in _urls(location):
        scheme, netloc, path = split_url(canonical_url(url))
        if scheme in ("redis", "rediss"):
            place = urlsplit(f"//{netloc}")
            found.add((place.hostname, place.port or 6379, path.partition("?")[0] or "0"))
    return found


def _even(backend: Backend, _rows: HealthRows) -> list[int]:
    nodes = len(backend.nodes) if isinstance(backend, RedlockBackend) else 1
    return _when(nodes % 2 == 0, nodes)


RULES = (
    DeployRule(
        "W001",
        lambda backend, _: _when(isinstance(backend, DummyBackend)),
        "is the dummy backend: it grants every lock to every caller.",
        "It is for tests.",
    ),
    DeployRule(
        "W002",
        lambda backend, _: _when(isinstance(backend, LocMemBackend)),
        "keeps its locks in one process: other processes don't see them.",
        "It is for tests and development.",
    ),
    DeployRule(
        "W007",
        _in_plain_text,
        "speaks to {} without TLS.",
        "Anyone who can read the traffic gets the password, and the tokens, which can release locks. Use rediss:// "
        "(rediss+sentinel://, rediss+cluster://), or silence this check in a private network.",
    ),
    DeployRule(
        "W008",
        lambda backend, _: _when(backend.ttl < SHORT, f"{backend.ttl:g}"),
        "has a ttl of {} s: a process that is stopped for two thirds of that loses its locks.",
        f"Renewal keeps a lock for as long as its holder lives: {SHORT:g} s or more cost nothing except a longer wait "
        "after a crash.",
    ),
    DeployRule(
        "W009",
        _forgetful,
        "has no persistence on {}, and no quarantine: a restart gives away locks that are held.",
        "Set appendonly yes on the server, or quarantine=True in OPTIONS (not for a Cluster or TimestampBackend).",
    ),
    DeployRule(
        "W010",
        _even,
        "has {} nodes: an even number tolerates no more failures than one node less.",
        "Use an odd number.",
    ),
    DeployRule(
        "W011",
        _flushed,
        "is on the Redis database of CACHES[{!r}]: clear() of that cache removes the locks that are held.",
        "Caches on Redis flush the whole database. Give the locks a database of their own, or silence this check if "
        "nothing calls clear().",
    ),
)


ALWAYS = {"redlock.W011"}  # dangerous in development, too


def deployment(alias: str, rows: list[dict[str, Any]], *, in_production: bool = True) -> list[dict[str, Any]]:
    """Return the deployment warnings about the store ``alias`` in one row of the form that ``health()`` uses.

    The result is a list of that row, or ``[]`` if there are no warnings. Warnings in SILENCED_SYSTEM_CHECKS are left
    out. ``rows``: the result of the store's ``health()``. ``in_production``: false for the warnings in `ALWAYS` only.
    """
    try:
        found = cautions(locks[alias], rows)
    except ImproperlyConfigured:
        return []  # health() reports the bad setting
    wanted = [each for each in found if in_production or each.id in ALWAYS]
    loud = [each for each in wanted if each.id not in settings.SILENCED_SYSTEM_CHECKS]
    warnings = [f"{each.sentence} {each.hint} ({each.id})" for each in loud]
    return [{"node": "settings", "ok": True, "problems": [], "warnings": warnings}] if warnings else []
