"""System checks of the ``REDLOCK`` setting."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured


@register(Tags.caches)
def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Every alias can be built, and there is a default."""
    from .handler import _WHAT_TO_WRITE, DEFAULT_ALIAS, build, configuration

    entries = configuration()
    if DEFAULT_ALIAS not in entries:
        return [Error("no lock backend 'default' is configured", hint=_WHAT_TO_WRITE, id="redlock.E001")]
    found: list[CheckMessage] = []
    for alias, entry in entries.items():
        try:
            build(alias, entry)
        except ImproperlyConfigured as error:
            found.append(Error(str(error), id="redlock.E002"))
    return found
