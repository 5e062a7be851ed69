"""What is shown of settings: error messages and checks end up in logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_IN_QUERY = re.compile(r"(?<=password=)[^&#]*")


def redact(value: Any) -> Any:
    """A location, a list of them, or an entry of the settings, with "…" in place of what to log in with."""
    if isinstance(value, Mapping):
        return {name: redact(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact(each) for each in value]
    if not isinstance(value, str):
        return value
    scheme, separator, rest = value.partition("://") if "://" in value else ("", "", value)
    _, at, place = rest.rpartition("@")
    return scheme + separator + ("…@" if at else "") + _IN_QUERY.sub("…", place)
