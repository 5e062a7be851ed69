"""System checks of the ``REDLOCK`` setting and of tasks with locks. docs/reference/checks.rst explains each id."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Info, register
from django.core.checks import Warning as Caution
from django.core.exceptions import ImproperlyConfigured

from ..backend_registry import DEFAULT_ALIAS, WHAT_TO_WRITE, backend_class, build, configuration, locks
from ..store_queries import health
from .deploy import cautions

TAG = "redlock"


@register(TAG)
def check_settings(**_kwargs: Any) -> list[CheckMessage]:
    """Return the problems of the ``REDLOCK`` setting: no default alias, backends that can't be built, unsafe options.

    Opens no connection.
    """
    try:
        entries = configuration()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="redlock.E002")]
    missing = (
        [] if DEFAULT_ALIAS in entries else [Error("REDLOCK has no alias 'default'.", WHAT_TO_WRITE, id="redlock.E001")]
    )
    return [*missing, *(message for alias, entry in entries.items() for message in _entry(alias, entry))]


def _entry(alias: str, entry: Any) -> Iterator[CheckMessage]:
    try:
        backend_class(alias, entry)
    except ImproperlyConfigured as error:
        yield Error(str(error), id="redlock.E003")
        return
    try:
        backend = build(alias, entry)
    except ImproperlyConfigured as error:
        yield Error(str(error), id="redlock.E002")
        return
    node_timeout = getattr(backend, "node_timeout", 0)
    if node_timeout > backend.ttl / 3:
        yield Caution(
            f"REDLOCK[{alias!r}]: node_timeout ({node_timeout:g} s) is more than a third of the ttl.",
            f"A request that hangs can cost the lease. Make it shorter, or the ttl ({backend.ttl:g} s) longer.",
            id="redlock.W005",
        )


@register(TAG, deploy=True)
def check_deployment(**_kwargs: Any) -> list[CheckMessage]:
    """Return warnings of dangerous settings (see `cautions`) and of unhealthy servers, for ``check --deploy``."""
    try:
        aliases = list(locks)
    except ImproperlyConfigured:
        return []
    return [message for alias in aliases for message in _in_production(alias)]


def _in_production(alias: str) -> Iterator[CheckMessage]:
    where = f"REDLOCK[{alias!r}]"
    try:
        backend = locks[alias]
    except ImproperlyConfigured:
        return  # check_settings reports the error
    nodes = health(alias)
    for id, sentence, hint in cautions(backend, nodes):
        yield Caution(f"{where} {sentence}", hint, id=id)
    for node in nodes:
        for problem in [*node["problems"], *node.get("warnings", ())]:
            # A row without a version belongs to a server that did not reply.
            kind, number = (Caution, "W006") if "version" in node else (Info, "I001")
            yield kind(f"{where}, {node['node']}: {problem}", id=f"redlock.{number}")


@register(TAG)
def check_tasks(**_kwargs: Any) -> list[CheckMessage]:
    """Return an error for each ``single_instance_task`` with a mode or limit that its lock backend does not support.

    Opens no connection. Checks nothing in a project that has imported neither Celery nor ``django_redlock.tasks``.
    """
    if not {"celery", "django_redlock.tasks"} & sys.modules.keys():
        return []
    from ..single_instance.protection import refused_tasks

    return [Error(reason, id="redlock.E005") for reason in refused_tasks()]
