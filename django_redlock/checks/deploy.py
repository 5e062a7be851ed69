"""Settings that are harmless in development and dangerous in production: for ``check --deploy`` and the like."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from ..backends.base import Backend
from ..backends.dummy import DummyBackend
from ..backends.locmem import LocMemBackend
from ..backends.redlock import RedlockBackend
from ..client.urls import canonical_url, split_url
from ..handler import locks

SHORT = 3.0  # seconds: a lease below that is renewed every second or more often, and a busy process stalls for longer
_PLAIN = ("redis", "redis+sentinel", "redis+cluster")

HealthRows = Sequence[Mapping[str, Any]]


class Caution(NamedTuple):
    """A warning about one store. ``id`` is that of the system check, by which it is silenced."""

    id: str
    sentence: str
    hint: str


class DeployRule(NamedTuple):
    """A sentence for each result of ``find`` on a backend and its health rows; ``{}`` stands for the result."""

    number: str
    find: Callable[[Backend, HealthRows], Iterable[Any]]
    sentence: str
    hint: str


def cautions(backend: Backend, rows: HealthRows) -> list[Caution]:
    """The warnings about a store in production. ``rows``: the result of its ``health()``."""
    return [
        Caution(f"redlock.{rule.number}", rule.sentence.format(found), rule.hint)
        for rule in RULES
        for found in rule.find(backend, rows)
    ]


def _when(condition: bool, value: Any = "") -> list[Any]:
    return [value] if condition else []


def _in_plain_text(backend: Backend, _rows: HealthRows) -> Iterator[str]:
    """Other hosts that are reached without TLS."""
    for location in _urls(backend.location):
        scheme, netloc, _ = split_url(canonical_url(location))
        if scheme in _PLAIN:
            hosts = (urlsplit(f"//{place.strip()}").hostname for place in netloc.rpartition("@")[2].split(","))
            yield from (host for host in hosts if host and not _is_here(host))


def _urls(location: Any) -> list[str]:
    """Each URL of a LOCATION. The URLs of a cache are in CACHES."""
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
    """Servers that lose all data at a restart, in a store without quarantine."""
    if not getattr(backend, "quarantine", False):
        yield from (row["node"] for row in rows if row.get("persistence") == "off")


def _even(backend: Backend, _rows: HealthRows) -> list[int]:
    nodes = len(backend.nodes) if isinstance(backend, RedlockBackend) else 1
    return _when(nodes % 2 == 0, nodes)


RULES = (
    DeployRule(
        "W001",
        lambda backend, _: _when(isinstance(backend, DummyBackend)),
        "is the dummy backend: it grants every lock to everybody.",
        "It is for tests.",
    ),
    DeployRule(
        "W002",
        lambda backend, _: _when(isinstance(backend, LocMemBackend)),
        "keeps its locks in one process: others don't see them.",
        "It is for tests and development.",
    ),
    DeployRule(
        "W007",
        _in_plain_text,
        "speaks to {} without TLS.",
        "Who reads along gets the password and the tokens, with which locks can be released. Use rediss://, or silence "
        "this where the network is your own.",
    ),
    DeployRule(
        "W008",
        lambda backend, _: _when(backend.ttl < SHORT, f"{backend.ttl:g}"),
        "has a ttl of {} s: a process that is stopped for two thirds of that loses its locks.",
        f"Renewal keeps a lock for as long as its holder lives: {SHORT:g} s and more cost nothing but a longer wait "
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
)


def deployment(alias: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row of health with the cautions about a store, if any, without those of SILENCED_SYSTEM_CHECKS."""
    try:
        found = cautions(locks[alias], rows)
    except ImproperlyConfigured:
        return []  # health() says it
    loud = [each for each in found if each.id not in settings.SILENCED_SYSTEM_CHECKS]
    warnings = [f"{each.sentence} {each.hint} ({each.id})" for each in loud]
    return [{"node": "settings", "ok": True, "problems": [], "warnings": warnings}] if warnings else []
