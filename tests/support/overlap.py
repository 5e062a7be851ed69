"""Detects overlapping leases.

Workers write the periods in which they believe to hold a lock to files, a checker compares. Times are CLOCK_MONOTONIC
in seconds, which all processes of a machine share.
"""

import contextlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Belief(NamedTuple):
    """A period, from `start` to `end`, in which `worker` believed to hold `name`."""

    start: float
    end: float
    worker: str
    name: str


@contextlib.contextmanager
def believing(
    file: Path | str, name: str, worker: str, until: float | None = None
) -> Iterator[Callable[[float], None]]:
    """Record the belief that a lock is held, from here to the end of the block, at most until `until` (end of the
    lease). The start is written at once, so that the belief of a killed worker counts: up to `until`, or for an instant
    if `until` is unknown. Yields a function that changes `until`, after a renewal or when the lease is lost.
    """
    entry = os.urandom(8).hex()
    _append(file, entry=entry, start=time.monotonic(), end=until, worker=worker, name=name)

    def believe(other: float) -> None:
        nonlocal until
        if other != until:
            until = other
            _append(file, entry=entry, end=until)

    try:
        yield believe
    finally:
        now = time.monotonic()
        _append(file, entry=entry, end=now if until is None else min(now, until))


def read(*files: Path | str) -> list[Belief]:
    """Returns all beliefs in the files, ordered by start. Omits beliefs whose lease ended before the start."""
    known: dict[str, dict] = defaultdict(dict)
    for file in files:
        for line in Path(file).read_text().splitlines():
            fact = json.loads(line)
            known[fact.pop("entry")] |= fact
    for fact in known.values():
        fact["end"] = fact["start"] if fact["end"] is None else fact["end"]
    return sorted(Belief(**fact) for fact in known.values() if fact["start"] <= fact["end"])


def overlaps(beliefs: Iterable[Belief], limit: int = 1) -> list[tuple[Belief, ...]]:
    """Returns a group of beliefs for each moment at which more than `limit` workers believed to hold one name."""
    found = []
    current: dict[str, list[Belief]] = defaultdict(list)
    for belief in sorted(beliefs):
        still = [other for other in current[belief.name] if other.end > belief.start]
        current[belief.name] = [*still, belief]
        if len(still) >= limit:
            found.append((*still, belief))
    return found


def _append(file: Path | str, **fact: object) -> None:
    """Append one line in a single write, so that lines of several processes are not mixed."""
    with Path(file).open("ab", buffering=0) as log:
        log.write(json.dumps(fact).encode() + b"\n")
