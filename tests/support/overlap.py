"""Who believed when to hold what: workers write it to files, a checker looks for two who believed it at once.

Times are CLOCK_MONOTONIC in seconds, which all processes of a machine share.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Belief(NamedTuple):
    """From `start` to `end`, `worker` was sure to hold `name`."""

    start: float
    end: float
    worker: str
    name: str


@contextlib.contextmanager
def believing(
    file: Path | str, name: str, worker: str, until: float | None = None
) -> Iterator[Callable[[float], None]]:
    """Write down that a lock is held from here to the end of the block, at the longest until `until` (its lease).

    The beginning is written at once, so that the belief of a worker who is killed counts: up to `until`, else only its
    first moment. The function that is yielded takes another `until`: after a renewal, or now, when the lease is lost.
    """
    ticket = os.urandom(8).hex()
    _append(file, ticket=ticket, start=time.monotonic(), end=until, worker=worker, name=name)

    def believe(other: float) -> None:
        nonlocal until
        if other != until:
            until = other
            _append(file, ticket=ticket, end=until)

    try:
        yield believe
    finally:
        now = time.monotonic()
        _append(file, ticket=ticket, end=now if until is None else min(now, until))


def read(*files: Path | str) -> list[Belief]:
    """All beliefs in the files, in order of their beginning; one whose lease had ended before it began is none."""
    known: dict[str, dict] = defaultdict(dict)
    for file in files:
        for line in Path(file).read_text().splitlines():
            fact = json.loads(line)
            known[fact.pop("ticket")] |= fact
    for fact in known.values():
        fact["end"] = fact["start"] if fact["end"] is None else fact["end"]
    return sorted(Belief(**fact) for fact in known.values() if fact["start"] <= fact["end"])


def overlaps(beliefs: Iterable[Belief], limit: int = 1) -> list[tuple[Belief, ...]]:
    """Each moment at which more than `limit` workers believed to hold one name: the beliefs of that moment.

    One that ends when another begins does not overlap it.
    """
    found = []
    current: dict[str, list[Belief]] = defaultdict(list)
    for belief in sorted(beliefs):
        still = [other for other in current[belief.name] if other.end > belief.start]
        current[belief.name] = [*still, belief]
        if len(still) >= limit:
            found.append((*still, belief))
    return found


def assert_no_overlap(*files: Path | str, limit: int = 1, at_least: int = 1) -> list[Belief]:
    """`AssertionError` when there is an overlap, or fewer beliefs than `at_least` (nothing was tested); the beliefs."""
    beliefs = read(*files)
    assert len(beliefs) >= at_least, f"only {len(beliefs)} grants, {at_least} expected"
    found = overlaps(beliefs, limit)
    first = "\n".join(f"  {b.start:.6f} to {b.end:.6f}  {b.worker}" for b in found[0]) if found else ""
    assert not found, f"{len(found)} overlaps among {len(beliefs)} grants; first, on {found[0][0].name!r}:\n{first}"
    return beliefs


def _append(file: Path | str, **fact: object) -> None:
    """One line, in one write: those of other processes may come before or after it, never in it."""
    with Path(file).open("ab", buffering=0) as log:
        log.write(json.dumps(fact).encode() + b"\n")
