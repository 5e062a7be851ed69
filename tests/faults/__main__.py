"""`python -m tests.faults --runs 200 --scenario redlock`: as many randomized fights as you like; counts what it saw.

Exit code: 1 when there was an overlap, or in a control none, or a fight that could not be fought to its end.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.faults.arena import Outcome
from tests.faults.scenarios import CONTROLS, SCENARIOS, Scenario


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="fights for each scenario")
    parser.add_argument("--scenario", action="append", default=[], help="only those whose name contains this")
    parser.add_argument("--seed", type=int, default=0, help="of the first fight")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new fight of a scenario after this")
    parser.add_argument("--controls", action="store_true", help="nothing protects: overlaps are expected")
    options = parser.parse_args()
    table = CONTROLS if options.controls else SCENARIOS
    chosen = {
        name: scenario
        for name, scenario in table.items()
        if not options.scenario or any(part in name for part in options.scenario)
    }
    failed = [name for name, scenario in chosen.items() if not fought(name, scenario, options)]
    return 1 if failed else 0


def fought(name: str, scenario: Scenario, options: argparse.Namespace) -> bool:
    """Fight, and say how it went; whether it went as it should."""
    began, counts, runs, hit, stale, broken = time.monotonic(), Counter[str](), 0, 0, 0, 0
    seeds = iter(range(options.seed, options.seed + options.runs))
    left = options.runs
    while left and time.monotonic() - began < options.seconds:
        try:
            with scenario.arena(**scenario.options) as arena:
                while left and time.monotonic() - began < options.seconds:
                    left, seed = left - 1, next(seeds)
                    outcome = arena.fight(scenario.fault, seed, forks=scenario.forks)
                    runs += 1
                    counts += outcome.counts
                    stale += outcome.stale_tokens
                    hit += bool(outcome.overlaps)
                    if outcome.overlaps and not options.controls:
                        print(
                            f"{name} seed {seed}: {len(outcome.overlaps)} overlaps: {outcome.overlaps[0]}", flush=True
                        )
        except Exception as error:  # noqa: BLE001  (told, and counted)
            broken += 1
            print(f"{name} seed {seed}: {type(error).__name__}: {error}", flush=True)
    took = time.monotonic() - began
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    share = Outcome([], counts, 0).availability
    said = f"{runs} runs, {share:.1%} available, {hit} with overlaps, {stale} stale tokens, {broken} broken off"
    print(f"{name}: {said}, {took:.0f} s; {told}", flush=True)
    return bool(hit) if options.controls else not (hit or stale or broken)


if __name__ == "__main__":
    sys.exit(main())
