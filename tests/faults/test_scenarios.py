"""Randomized fights under each fault. `make faults RUNS=200` runs more of them.

Fights on different kinds of store run in parallel, because they mostly wait. A test checks the fights of its scenario.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby

import pytest
from redis import RedisError

from testproject.redis_server import RedisServer
from tests.faults.arena import Outcome
from tests.faults.scenarios import CONTROLS, SCENARIOS, Scenario

RUNS = int(os.environ.get("REDLOCK_FAULT_RUNS", "1"))
ENOUGH = 0.95  # share of attempts that must be granted or refused when a majority is up all the time
TRIES = 60  # fights within which a control must show an overlap, which depends on the moment of the fault
AT_ONCE = 2  # with less than half of a processor, a fight misses its timeouts
PATIENCE = 600 + 60 * RUNS  # seconds
GRANTS = 6  # of a fight, three before and three after the fault
MOST = 6  # fights that may be repeated because the lock was not granted for too long, or too seldom

Fought = Callable[[str], tuple[int, list[Outcome]]]
pytestmark = pytest.mark.timeout(PATIENCE + 10)
fought_again: dict[str, str] = {}


@pytest.fixture(scope="module")
def fought(request, running) -> Iterator[Fought]:
    """`fought(name)` returns the first seed and the outcomes of a scenario."""
    running(RedisServer)  # skips or fails if there is no server
    wanted = [
        item.callspec.id for item in request.session.items if item.path == request.path and hasattr(item, "callspec")
    ]
    table = {f"guarded-{name}": scenario for name, scenario in SCENARIOS.items()}
    table |= {f"control-{name}": scenario for name, scenario in CONTROLS.items()}
    futures: dict[str, Future[tuple[int, list[Outcome]]]] = {name: Future() for name in wanted}
    rows = sorted(wanted, key=lambda name: _kind(name, table))
    groups = [list(group) for _, group in groupby(rows, lambda name: _kind(name, table))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for names in sorted(groups, key=len, reverse=True):
            pool.submit(_fight_all, {name: table[name] for name in names}, futures)
        yield lambda name: futures[name].result(PATIENCE)


def _kind(name: str, table: dict[str, Scenario]) -> tuple[str, bool, str]:
    scenario = table[name]
    return scenario.arena.__name__, scenario.proxied, str(scenario.options)


def _fight_all(scenarios: dict[str, Scenario], futures: dict[str, Future[tuple[int, list[Outcome]]]]) -> None:
    """Run scenarios on one kind of store, one after another. After an error, new servers are started."""
    waiting = dict(scenarios)
    while waiting:
        name, first = next(iter(waiting.items()))
        try:
            with first.arena(proxied=first.proxied, **first.options) as arena:
                while waiting:
                    name, scenario = next(iter(waiting.items()))
                    seed, outcomes = secrets.randbelow(10**6), []
                    control = name.startswith("control")
                    while len(outcomes) < (TRIES if control else RUNS):
                        # A lease that two primaries have prevents an overlap until it ends, and a lock that is held
                        # for less time than servers take to restart can't overlap: each try takes longer.
                        arena.stretch = min(1 + 2 * len(outcomes), 50) if control else 1
                        outcomes.append(arena.fight(scenario.fault, seed + len(outcomes), forks=scenario.forks))
                        if not control and name not in fought_again:
                            _require_grants(scenario, outcomes[-1])
                        if control and outcomes[-1].overlaps:
                            break
                    del waiting[name]
                    futures[name].set_result((seed, outcomes))
        except Exception as error:  # noqa: BLE001  (told to the test)
            slow = isinstance(error, OSError | RuntimeError | RedisError)  # of servers, proxies and the test itself
            if slow and name not in fought_again:
                fought_again[name] = f"{type(error).__name__}: {error}"
                continue
            del waiting[name]
            futures[name].set_exception(error)


def _require_grants(scenario: Scenario, outcome: Outcome) -> None:
    """Raise `TimeoutError` if the fight proves nothing, because the machine was too busy."""
    if outcome.overlaps or outcome.stale_tokens:
        return
    if outcome.counts["beliefs"] < GRANTS:  # a lease that had ended before its holder knew does not count
        raise TimeoutError(f"{outcome.counts['beliefs']} grants")
    if scenario.available and outcome.availability < ENOUGH:
        raise TimeoutError(f"{outcome.availability:.1%} available: {outcome.failures[:3]}")


@pytest.mark.parametrize("name", [pytest.param(name, id=f"guarded-{name}") for name in SCENARIOS])
def test_no_overlap(name, fought):
    """Under this fault two clients never believe to hold the lock at the same moment, and fencing tokens grow."""
    seed, outcomes = fought(f"guarded-{name}")
    assert len(outcomes) == RUNS
    for number, outcome in enumerate(outcomes):
        assert outcome.counts["beliefs"] >= GRANTS
        assert not outcome.overlaps, f"seed {seed + number}: {outcome.overlaps[0]}"
        assert not SCENARIOS[name].available or outcome.availability >= ENOUGH
        assert not outcome.stale_tokens, f"seed {seed + number}: {outcome.stale_tokens} fencing tokens did not grow"


@pytest.mark.parametrize("name", [pytest.param(name, id=f"control-{name}") for name in CONTROLS])
def test_overlaps_without_protection(name, fought):
    """Without protection the fault gives the lock to two clients at once, and the checker finds it."""
    _, outcomes = fought(f"control-{name}")
    assert outcomes[-1].overlaps, f"no overlap in {len(outcomes)} fights"


def test_few_fights_are_repeated(record_property):
    """A fight without grants proves nothing and is repeated once. The end of the test run lists those fights."""
    for name, error in fought_again.items():
        record_property("fought again", f"{name}: {error}")
    assert len(fought_again) <= MOST, fought_again
