"""``python -m tests.simulation`` plays many seeds on all cores."""

import argparse
import gc
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from django_redlock.core.primitives.base import MUTEX, RLOCK, SEMAPHORE, Primitive
from django_redlock.core.primitives.fair import FAIR, WRITE
from django_redlock.core.primitives.multi import MULTILOCK, STRIPED

from .roles import Candidate, HandingThread, PeriodicThread
from .scenario import Setting, Violation, play
from .threads import Thread

# The share of each algorithm, and of each kind of lock, in the seeds.
ALGORITHMS = *4 * ("quorum",), *3 * ("single",), *2 * ("unguarded",), "cluster", *3 * ("replicas",)
ROLES = HandingThread, Candidate, PeriodicThread  # half of the runs with mutexes
WATCHED = 4  # every fourth run has an onlooker, which takes a third more time
KINDS = (
    *4 * (MUTEX,),
    WRITE,
    FAIR,
    RLOCK,
    SEMAPHORE._replace(limit=2),
    SEMAPHORE._replace(limit=3),
    *2 * (STRIPED,),
    MULTILOCK,
)


def runs(algorithm: str, primitive: Primitive) -> bool:
    """Whether an algorithm is simulated with this kind of lock. A cluster differs from a single node only for
    multilocks, a node without quarantine for mutexes (SET NX).
    """
    if algorithm == "quorum":
        return primitive is not FAIR
    few = {"cluster": (MULTILOCK,), "unguarded": (MUTEX, MULTILOCK)}.get(algorithm)
    return few is None or primitive in few


def attempt(seed: int, algorithm: str, kind: str) -> tuple[int, str]:
    """Play one seed. Returns the number of grants and the timeline of a violation, empty without one."""
    algorithm = algorithm or ALGORITHMS[seed % len(ALGORITHMS)]
    kinds = [each for each in KINDS if kind in ("", each.kind) and runs(algorithm, each)] or [MULTILOCK]
    number, place = divmod(seed // len(ALGORITHMS), len(kinds))
    threads = ROLES[number % len(ROLES)] if kinds[place] is MUTEX and place >= 2 else Thread
    try:
        watched = seed % WATCHED == 0
        calm = seed % 9 == 0
        setting = Setting(algorithm, kinds[place], calm=calm, threads=threads, onlookers=watched)
        return play(seed, setting).grants, ""
    except Violation as violation:
        return 0, str(violation)


def prepare() -> None:
    """Collect garbage less often, because a run makes many small objects and few reference cycles."""
    gc.freeze()
    gc.set_threshold(50_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="from which on; with --seeds 1 it replays just that one")
    parser.add_argument("--algorithm", choices=sorted(set(ALGORITHMS)), default="")
    parser.add_argument("--kind", choices=sorted({primitive.kind for primitive in KINDS}), default="")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    start, granted, done = time.monotonic(), 0, 0
    fork = multiprocessing.get_context("fork")  # Python 3.14's default can't find the functions of this module
    with ProcessPoolExecutor(os.cpu_count(), fork, initializer=prepare) as pool:
        for grants, violation in pool.map(
            attempt, seeds, repeat(options.algorithm), repeat(options.kind), chunksize=20
        ):
            if violation:
                sys.stdout.write(f"{violation}\n")
                pool.shutdown(wait=False, cancel_futures=True)
                return 1
            granted, done = granted + grants, done + 1
            if sys.stderr.isatty() and done % 100 == 0:
                sys.stderr.write(f"\r{done} of {options.seeds} seeds, {granted} locks granted")
    took = time.monotonic() - start
    sys.stdout.write(f"{done} seeds, {granted} locks granted, nothing that must not happen; {took:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
