"""Fights of one scenario, one after another on the same servers, and what is said of them."""

from __future__ import annotations

import time
from collections import Counter

from tests.faults.arena import Outcome
from tests.faults.scenarios import CONTROLS, SCENARIOS

ENOUGH = 0.95  # of the attempts must be decided where a majority is up all the while

Fight = tuple[int, Outcome | str]  # the seed, and what came out or went wrong


def series(name: str, controls: bool, seeds: range, until: float) -> list[Fight]:
    """Fights with these seeds, none begun after that time of the monotonic clock; after an error on new servers."""
    scenario = (CONTROLS if controls else SCENARIOS)[name]
    left, fights = list(reversed(seeds)), list[Fight]()
    while left and time.monotonic() < until:
        seed = left[-1]
        try:
            with scenario.arena(**scenario.options) as arena:
                while left and time.monotonic() < until:
                    seed = left[-1]
                    outcome = arena.fight(scenario.fault, seed, forks=scenario.forks)
                    fights.append((left.pop(), outcome))
        except Exception as error:  # noqa: BLE001  (told, and counted)
            if seed in left:
                left.remove(seed)
            fights.append((seed, f"{type(error).__name__}: {error}"))
    return fights


def remarkable(outcome: Outcome | str) -> str:
    """What must not happen, in words."""
    if isinstance(outcome, str):
        return outcome
    overlapping = f"{len(outcome.overlaps)} overlaps: {outcome.overlaps[0]}" if outcome.overlaps else ""
    stale = f"{outcome.stale_tokens} fencing tokens did not grow" if outcome.stale_tokens else ""
    return "; ".join(filter(None, (overlapping, stale)))


def summary(name: str, fights: list[Fight]) -> str:
    """All that was counted."""
    outcomes = [outcome for _, outcome in fights if isinstance(outcome, Outcome)]
    counts = sum((outcome.counts for outcome in outcomes), Counter[str]())
    hit = sum(bool(outcome.overlaps) for outcome in outcomes)
    stale = sum(outcome.stale_tokens for outcome in outcomes)
    available = f"{Outcome([], counts, 0).availability:.1%} available"
    if name in SCENARIOS and SCENARIOS[name].available and outcomes:
        few = sum(outcome.availability < ENOUGH for outcome in outcomes)
        worst = min(outcome.availability for outcome in outcomes)
        available += f" (in the worst fight {worst:.1%}; below {ENOUGH:.0%} in {few})"
    broken = len(fights) - len(outcomes)
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    return f"{len(fights)} runs, {available}, {hit} with overlaps, {stale} stale tokens, {broken} broken off; {told}"


def went_well(fights: list[Fight], controls: bool) -> bool:
    """Whether nothing happened that must not; in a control, whether it did."""
    if controls:
        return any(isinstance(outcome, Outcome) and outcome.overlaps for _, outcome in fights)
    return not any(remarkable(outcome) for _, outcome in fights)
