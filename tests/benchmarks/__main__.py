"""`python -m tests.benchmarks [names] [--format json]` prints ratios to other libraries, and the bars for them.

Exit code: 1 when a bar is missed.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator

from django_redlock.management.pipes import unread
from tests.benchmarks.async_pairs import asyncio_pair
from tests.benchmarks.celery_tasks import celery
from tests.benchmarks.cluster import cluster
from tests.benchmarks.costs import costs
from tests.benchmarks.growth import growth
from tests.benchmarks.handover import crowd, handover
from tests.benchmarks.measure import Row
from tests.benchmarks.pair import pair
from tests.benchmarks.quorum import quorum, quorum_faults
from tests.benchmarks.renewals import renewals

BENCHMARKS: dict[str, Callable[[], Iterator[Row]]] = {
    each.__name__.replace("_", "-"): each
    for each in (pair, asyncio_pair, costs, handover, crowd, renewals, quorum, quorum_faults, cluster, growth, celery)
}
BY_NAME_ONLY = {"growth"}  # takes minutes
VERDICTS = {True: "met", False: "MISSED", None: ""}


def main() -> int:
    """Run the chosen benchmarks, by default all."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=", ".join(f"{name}: {b.__doc__}" for name, b in BENCHMARKS.items()))
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}")
    rows: list[tuple[str, Row]] = []
    for name in options.names or [each for each in BENCHMARKS if each not in BY_NAME_ONLY]:
        for row in BENCHMARKS[name]():
            rows.append((name, row))
            if options.format == "text":
                print(_line(name, row), flush=True)
    if options.format == "json":
        print(json.dumps([{"benchmark": name, **row._asdict(), "met": row.met} for name, row in rows], indent=2))
    return int(any(row.met is False for _, row in rows))


def _line(name: str, row: Row) -> str:
    sense = ">=" if row.least else "<="
    bar = "" if row.bar is None else f"{sense} {row.bar:g}"
    return f"{name:<14}{row.what:<76}{row.value:>8.3g} {row.unit:<4}{bar:>8} {VERDICTS[row.met]:<7} {row.note}"


if __name__ == "__main__":
    with unread():
        sys.exit(main())
