"""``python -m tests.simulation``: play many seeds, on all cores."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from .scenario import Setting, Violation, play

# Of ten seeds: so many of each rule.
SHARE = ("quorum", "quorum", "quorum", "quorum", "single", "single", "single", "replicas", "replicas", "replicas")


def attempt(seed: int, rule: str) -> tuple[int, str]:
    """How many locks were granted, and the timeline of a violation."""
    try:
        return play(seed, Setting(rule or SHARE[seed % len(SHARE)], calm=seed % 7 == 0)).grants, ""
    except Violation as violation:
        return 0, str(violation)


def main() -> int:
    """Exit code 1 when something happened that must never happen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="from which on; with --seeds 1 it replays just that one")
    parser.add_argument("--rule", choices=sorted(set(SHARE)), default="")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    granted = done = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for grants, violation in pool.map(attempt, seeds, repeat(options.rule), chunksize=20):
            if violation:
                sys.stdout.write(f"{violation}\n")
                pool.shutdown(wait=False, cancel_futures=True)
                return 1
            granted, done = granted + grants, done + 1
            if sys.stderr.isatty() and done % 100 == 0:
                sys.stderr.write(f"\r{done} of {options.seeds} seeds, {granted} locks granted")
    sys.stdout.write(f"{done} seeds, {granted} locks granted, nothing that must not happen\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
