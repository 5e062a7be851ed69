"""Removes user names and passwords from settings that are shown in error messages and checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_IN_QUERY = re.compile(r"(?<=password=)[^&#]*")


def redact(value: Any) -> Any:
    """Return a copy of ``value`` in which "…" replaces the user names and passwords of all locations.

    ``value`` is a location, a list of locations or an entry of the settings.
    """
    if isinstance(value, Mapping):
        return {name: redact(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact(each) for each in value]
    if not isinstance(value, str):
        return value
    scheme, separator, rest = value.partition("://") if "://" in value else ("", "", value)
    _, at, address = rest.rpartition("@")
    return scheme + separator + ("…@" if at else "") + _IN_QUERY.sub("…", address)
