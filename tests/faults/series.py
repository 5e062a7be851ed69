"""Fights of one scenario, one after another on the same servers, and what is said of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.faults.arena import Outcome
from tests.faults.scenarios import CONTROLS, SCENARIOS, Scenario

ENOUGH = 0.95  # of the attempts must be decided where a majority is up all the while

Fight = tuple[int, Outcome | str]  # the seed, and what came out or went wrong


def series(name: str, controls: bool, seeds: Sequence[int], until: float) -> list[Fight]:
    """Fights with these seeds, none begun after that time of the monotonic clock; after an error on new servers.

    One that was broken off is fought once more: on a machine that is too busy for a while nobody gets a lock in time.
    """
    scenario = (CONTROLS if controls else SCENARIOS)[name]
    left, fights, again = list(reversed(seeds)), list[Fight](), set[int]()
    while left and time.monotonic() < until:
        seed = left[-1]
        try:
            with scenario.arena(proxied=scenario.proxied, **scenario.options) as arena:
                while left and time.monotonic() < until:
                    seed = left[-1]
                    outcome = arena.fight(scenario.fault, seed, forks=scenario.forks)
                    outcome.counts["fought again"] += seed in again
                    fights.append((left.pop(), outcome))
        except Exception as error:  # noqa: BLE001  (told, and counted)
            if seed in again:
                fights.append((left.pop(), f"{type(error).__name__}: {error}"))
            elif left:
                again.add(seed)
    return fights


def remarkable(scenario: Scenario, outcome: Outcome | str) -> str:
    """What must not happen, in words."""
    if isinstance(outcome, str):
        return f"broken off: {outcome}"
    told = []
    if outcome.overlaps:
        told.append(f"{len(outcome.overlaps)} overlaps: {outcome.overlaps[0]}")
    if outcome.stale_tokens:
        told.append(f"{outcome.stale_tokens} fencing tokens did not grow")
    if scenario.available and outcome.availability < ENOUGH:
        told.append(f"{outcome.availability:.1%} available: {'; '.join(each.error for each in outcome.failures)}")
    return "; ".join(told)


def fought(fights: Sequence[Fight]) -> list[Outcome]:
    """Those that came to their end."""
    return [outcome for _, outcome in fights if isinstance(outcome, Outcome)]


def summary(fights: Sequence[Fight]) -> str:
    """All that was counted."""
    counts = sum((outcome.counts for outcome in fought(fights)), Counter[str]())
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def table(scenarios: Mapping[str, Scenario], fights: Mapping[str, Sequence[Fight]]) -> str:
    """A line for each scenario. What was available is held against the bar only where a majority was up all along."""
    titles = "scenario", "runs", "grants", "overlaps", "stale tokens", "broken off", "lowest availability"
    rows = [titles, *(row(name, scenarios[name], some) for name, some in fights.items())]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join([each[0].ljust(wide[0]), *map(str.rjust, each[1:], wide[1:])]) for each in rows)


def row(name: str, scenario: Scenario, fights: Sequence[Fight]) -> tuple[str, ...]:
    """What there is to say of a scenario's fights."""
    outcomes = fought(fights)
    lowest = min((outcome.availability for outcome in outcomes), default=0.0)
    numbers = (
        len(fights),
        sum(outcome.counts["granted"] for outcome in outcomes),
        sum(len(outcome.overlaps) for outcome in outcomes),
        sum(outcome.stale_tokens for outcome in outcomes),
        len(fights) - len(outcomes),
    )
    return name, *map(str, numbers), f"{lowest:.1%}" if scenario.available else f"({lowest:.1%})"


def went_well(scenario: Scenario, fights: Sequence[Fight], controls: bool) -> bool:
    """Whether nothing happened that must not; in a control, whether it did."""
    if controls:
        return any(outcome.overlaps for outcome in fought(fights))
    return bool(fights) and not any(remarkable(scenario, outcome) for _, outcome in fights)
