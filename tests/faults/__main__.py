"""`python -m tests.faults --runs 200 --jobs 16` runs randomized fights for a lock under faults, and prints a table.

Fights mostly wait, so several run in parallel. Each job has its own servers and clients. The exit code is 1 after an
overlap (in a control: without one), a fencing token that did not grow, an unavailable store although a majority was up,
or a fight that could not be finished.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from tests.faults.scenarios import CONTROLS, SCENARIOS
from tests.faults.series import Fight, remarkable, series, summary, table, went_well

AT_A_TIME = 20  # fights in a row on the same servers


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="fights for each scenario")
    parser.add_argument("--jobs", type=int, default=8, help="how many go on at the same time")
    parser.add_argument("--scenario", action="append", default=[], help="only those whose name contains this")
    parser.add_argument("--seed", type=int, default=0, help="of the first fight")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no new fight after this")
    parser.add_argument("--controls", action="store_true", help="nothing protects: overlaps are expected")
    options = parser.parse_args()
    known = CONTROLS if options.controls else SCENARIOS
    chosen = [name for name in known if not options.scenario or any(part in name for part in options.scenario)]
    seeds = range(options.seed, options.seed + options.runs)
    fights: dict[str, list[Fight]] = {name: [] for name in chosen}
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {what}", flush=True)

    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        # The scenarios take turns, so that a run that is stopped early has results of each scenario.
        under_way: dict[Future[list[Fight]], str] = {
            pool.submit(series, name, options.controls, seeds[first : first + AT_A_TIME], began + options.seconds): name
            for first in range(0, options.runs, AT_A_TIME)
            for name in chosen
        }
        for future in as_completed(under_way):
            name = under_way[future]
            fights[name] += future.result()
            for seed, outcome in future.result():
                if not options.controls and (what := remarkable(known[name], outcome)):
                    say(f"{name} seed {seed}: {what}")
            say(f"{name}: {len(fights[name])} runs; {summary(fights[name])}")
    say(f"{sum(map(len, fights.values()))} fights\n")
    print(table(known, fights))
    return 0 if all(went_well(known[name], fights[name], options.controls) for name in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
