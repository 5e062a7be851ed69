"""Passwords removed from settings, before these are shown in error messages and checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_IN_QUERY = re.compile(r"(?<=password=)[^&#]*")


def redact(value: Any) -> Any:
    """A location, a list of locations, or an entry of the settings, with "…" instead of user names and passwords."""
    if isinstance(value, Mapping):
        return {name: redact(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact(each) for each in value]
    if not isinstance(value, str):
        return value
    scheme, separator, rest = value.partition("://") if "://" in value else ("", "", value)
    _, at, address = rest.rpartition("@")
    return scheme + separator + ("…@" if at else "") + _IN_QUERY.sub("…", address)
