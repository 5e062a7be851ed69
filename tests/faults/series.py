"""Fights of one scenario, one after another on the same servers, and a report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.faults.arena import Outcome
from tests.faults.scenarios import CONTROLS, SCENARIOS, Scenario

ENOUGH = 0.95  # share of attempts that must be granted or refused when a majority is up all the time

Fight = tuple[int, Outcome | str]  # the seed, and the outcome or the error


def series(name: str, controls: bool, seeds: Sequence[int], until: float) -> list[Fight]:
    """Run fights with these seeds, until the monotonic time `until`. After an error, new servers are started.

    A fight that failed is repeated once, because on a busy machine no client may get the lock in time.
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
    """Returns the violations of an outcome as a text. Empty: no violation."""
    if isinstance(outcome, str):
        return f"broken off: {outcome}"
    problems = []
    if outcome.overlaps:
        problems.append(f"{len(outcome.overlaps)} overlaps: {outcome.overlaps[0]}")
    if outcome.stale_tokens:
        problems.append(f"{outcome.stale_tokens} fencing tokens did not grow")
    if scenario.available and outcome.availability < ENOUGH:
        problems.append(f"{outcome.availability:.1%} available: {'; '.join(each.error for each in outcome.failures)}")
    return "; ".join(problems)


def fought(fights: Sequence[Fight]) -> list[Outcome]:
    """Returns the outcomes of the fights that finished."""
    return [outcome for _, outcome in fights if isinstance(outcome, Outcome)]


def summary(fights: Sequence[Fight]) -> str:
    """Returns the sums of all counts as a text."""
    counts = sum((outcome.counts for outcome in fought(fights)), Counter[str]())
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def table(scenarios: Mapping[str, Scenario], fights: Mapping[str, Sequence[Fight]]) -> str:
    """Returns a table with a row for each scenario.

    Availability is in brackets where no majority was up all the time.
    """
    titles = "scenario", "runs", "grants", "overlaps", "stale tokens", "broken off", "lowest availability"
    rows = [titles, *(row(name, scenarios[name], some) for name, some in fights.items())]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join([each[0].ljust(wide[0]), *map(str.rjust, each[1:], wide[1:])]) for each in rows)


def row(name: str, scenario: Scenario, fights: Sequence[Fight]) -> tuple[str, ...]:
    """Returns the table row of a scenario."""
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
    """Whether no fight had a violation. In a control, whether a fight had an overlap."""
    if controls:
        return any(outcome.overlaps for outcome in fought(fights))
    return bool(fights) and not any(remarkable(scenario, outcome) for _, outcome in fights)
