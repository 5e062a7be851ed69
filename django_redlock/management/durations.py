"""Parses durations on the command line: ``90``, ``90s``, ``15m``, ``1h``, ``2d``."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


def duration_seconds(text: str) -> float:
    """Return the seconds in ``text``: a number of seconds, or a number with the unit s, m, h or d.

    A parser for argparse's ``type``. Raises ``ArgumentTypeError`` for any other text.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ArgumentTypeError(f"{text} is not a duration: write seconds, or 90s, 15m, 1h, 2d")
    return float(found[1]) * _SECONDS[found[2]]
