"""Randomized fights under each fault. `make faults RUNS=200` runs more of them."""

import contextlib
import os
import secrets

import pytest
from redis import RedisError

from testproject.redis_server import RedisServer
from tests.faults.scenarios import CONTROLS, SCENARIOS

RUNS = int(os.environ.get("REDLOCK_FAULT_RUNS", "1"))
ENOUGH = 0.95  # share of attempts that must be granted or refused when a majority is up all the time
TRIES = 60  # fights within which a control must show an overlap, which depends on the moment of the fault
GRANTS = 6  # of a fight, three before and three after the fault
pytestmark = pytest.mark.timeout(600 + 60 * RUNS)


def kind(scenario):
    """Return what the servers of a scenario depend on."""
    return scenario.arena.__name__, scenario.proxied, str(scenario.options)


@pytest.fixture(scope="module")
def fight(running):
    """`fight(scenario, seed)`: the outcome of a fight. Fights in a row on the same kind of store share its servers. A
    fight is repeated once if it proves nothing because the machine was too busy, but not with a ``stretch``.
    """
    running(RedisServer)  # skips or fails if there is no server
    with contextlib.ExitStack() as servers:
        arenas = {}

        def once(scenario, seed, stretch):
            arena = arenas.pop(kind(scenario), None)
            if arena is None:
                servers.close()
                arena = servers.enter_context(scenario.arena(proxied=scenario.proxied, **scenario.options))
            arena.stretch = stretch or 1
            outcome = arena.fight(scenario.fault, seed, forks=scenario.forks)
            arenas.clear()
            arenas[kind(scenario)] = arena  # after an error, the next fight is on new servers
            if stretch or outcome.overlaps or outcome.stale_tokens:
                return outcome
            if outcome.counts["beliefs"] < GRANTS:  # a lease that had ended before its holder knew does not count
                raise TimeoutError(f"{outcome.counts['beliefs']} grants")
            if scenario.available and outcome.availability < ENOUGH:
                raise TimeoutError(f"{outcome.availability:.1%} available: {outcome.failures[:3]}")
            return outcome

        def fight(scenario, seed, stretch=None):
            try:
                return once(scenario, seed, stretch)
            except (OSError, RuntimeError, RedisError):  # of servers, proxies and the test itself
                return once(scenario, seed, stretch)

        yield fight


@pytest.mark.parametrize("name", sorted(SCENARIOS, key=lambda name: kind(SCENARIOS[name])))
def test_no_overlap(name, fight):
    """Under this fault two clients never believe to hold the lock at the same moment, and fencing tokens grow."""
    first = secrets.randbelow(10**6)
    for seed in range(first, first + RUNS):
        outcome = fight(SCENARIOS[name], seed)
        assert not outcome.overlaps, f"seed {seed}: {outcome.overlaps[0]}"
        assert not outcome.stale_tokens, f"seed {seed}: {outcome.stale_tokens} fencing tokens did not grow"


@pytest.mark.parametrize("name", sorted(CONTROLS, key=lambda name: kind(CONTROLS[name])))
def test_overlaps_without_protection(name, fight):
    """Without protection the fault gives the lock to two clients at once, and the checker finds it."""
    first = secrets.randbelow(10**6)
    # A lease that two primaries have prevents an overlap until it ends, and a lock that is held for less time than
    # servers take to restart can't overlap: each try takes longer.
    tries = (fight(CONTROLS[name], first + number, min(1 + 2 * number, 50)) for number in range(TRIES))
    assert any(outcome.overlaps for outcome in tries), f"no overlap in {TRIES} fights"
