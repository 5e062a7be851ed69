"""Randomized fights of clients under faults: pairs of a kind of store and a fault. `make faults RUNS=200` runs more.

Each class has servers of its own. In a control, the same fault without protection, the checker must find overlaps.
"""

import contextlib
import os
import secrets
from typing import Any, NamedTuple

import pytest
from redis import RedisError

from testproject.redis_server import RedisServer
from tests.faults import faults
from tests.faults.arena import Arena
from tests.faults.faults import Fault
from tests.faults.places import Alone, AloneWithAof, Asynchronous, Five, FiveWithAof, WithReplicas, WithSentinels

RUNS = int(os.environ.get("REDLOCK_FAULT_RUNS", "1"))
ENOUGH = 0.95  # share of attempts that must be granted or refused when a majority is up all the time
TRIES = 60  # fights within which a control must show an overlap, which depends on the moment of the fault
STRETCH = 4  # in controls the lock is held for longer: for more time than servers take to restart
GRANTS = 6  # of a fight, three before and three after the fault
pytestmark = pytest.mark.timeout(600 + 60 * RUNS)


class Scenario(NamedTuple):
    """A kind of store, a fault, and options. `available`: a majority is up all the time."""

    arena: type[Arena]
    fault: Fault
    options: dict[str, Any] = {}
    available: bool = False

    @property
    def proxied(self) -> bool:
        return self.fault in faults.OF_THE_NETWORK

    @property
    def servers(self) -> tuple[object, ...]:
        """Return what the servers of a scenario depend on."""
        return self.arena, self.proxied, str(self.options)

    def __repr__(self) -> str:
        return f"{self.arena.__name__}-{self.fault.__name__}"


@pytest.fixture(scope="class")
def fight(running):
    """`fight(scenario, seed)`: the outcome of a fight. Fights in a row on the same kind of store share its servers. A
    fight is repeated once if it proves nothing because the machine was too busy, but not that of a control.
    """
    running(RedisServer)  # skips or fails if there is no server
    with contextlib.ExitStack() as servers:
        arenas = {}

        def once(scenario, seed, control):
            arena = arenas.pop(scenario.servers, None)
            if arena is None:
                servers.close()
                arena = servers.enter_context(scenario.arena(proxied=scenario.proxied, **scenario.options))
            arena.stretch = STRETCH if control else 1
            outcome = arena.fight(scenario.fault, seed, forks=scenario.fault is faults.let_fork)
            arenas.clear()
            arenas[scenario.servers] = arena  # after an error, the next fight is on new servers
            if control or outcome.overlaps or outcome.stale_tokens:
                return outcome
            if outcome.counts["beliefs"] < GRANTS:  # a lease that had ended before its holder knew does not count
                raise TimeoutError(f"{outcome.counts['beliefs']} grants")
            if scenario.available and outcome.availability < ENOUGH:
                raise TimeoutError(f"{outcome.availability:.1%} available: {outcome.failures[:3]}")
            return outcome

        def fight(scenario, seed, *, control=False):
            try:
                return once(scenario, seed, control)
            except (OSError, RuntimeError, RedisError):  # of servers, proxies and the test itself
                return once(scenario, seed, control)

        yield fight


def no_overlap(*scenarios):
    """Return tests: two clients never believe to hold the lock at the same moment, and fencing tokens grow."""

    class Cases:
        @pytest.mark.parametrize("scenario", scenarios, ids=repr)
        def test_no_overlap(self, fight, scenario):
            first = secrets.randbelow(10**6)
            for seed in range(first, first + RUNS):
                outcome = fight(scenario, seed)
                assert not outcome.overlaps, f"seed {seed}: {outcome.overlaps[0]}"
                assert not outcome.stale_tokens, f"seed {seed}: {outcome.stale_tokens} fencing tokens did not grow"

    return Cases


def control(*scenarios):
    """Return tests: without protection the fault gives the lock to two clients at once."""

    class Cases:
        @pytest.mark.parametrize("scenario", scenarios, ids=repr)
        def test_overlaps(self, fight, scenario):
            first = secrets.randbelow(10**6)
            tries = (fight(scenario, first + number, control=True) for number in range(TRIES))
            assert any(outcome.overlaps for outcome in tries), f"no overlap in {TRIES} fights"

    return Cases


# Long timeouts: a server that waits for a processor on a busy machine has not failed.
PATIENT = {"ttl": 4, "max_ttl": 4, "node_timeout": 3}
# Without quarantine no script acquires a free lock, and no data may be lost.
UNGUARDED = {"quarantine": False}


def fights(arena, *those, **options):
    return [Scenario(arena, fault, options) for fault in those]


TestRedis = no_overlap(
    *fights(Alone, *faults.LOSING_DATA, *faults.OF_PROCESSES), *fights(AloneWithAof, faults.restart_with_aof)
)
TestRedisNetwork = no_overlap(*fights(Alone, *faults.OF_CONNECTIONS, faults.slow_down, faults.everything))
TestUnguarded = no_overlap(*fights(Alone, *faults.OF_PROCESSES, *faults.OF_CONNECTIONS, **UNGUARDED))
TestRedlock = no_overlap(
    *fights(Five, *faults.LOSING_DATA, faults.restart_majority_empty, faults.restart_in_turn, *faults.OF_PROCESSES),
    *fights(FiveWithAof, faults.restart_with_aof),
)
TestRedlockNetwork = no_overlap(
    *fights(Five, *faults.OF_CONNECTIONS, faults.slow_down, faults.everything),
    Scenario(Five, faults.lose_minority, PATIENT, available=True),
)
TestPromotion = no_overlap(
    *fights(Asynchronous, faults.promote_lagging, faults.promote_twice),
    *fights(WithReplicas, *faults.OF_REPLICATION),
    *fights(WithSentinels, faults.sentinels_fail_over),
)
TestReplicas = no_overlap(*fights(WithReplicas, *faults.OF_CONNECTIONS, *faults.OF_CLIENTS))

# With a long ttl the first holder notices its loss late.
OFF = {"quarantine": False, "ttl": 3, "max_ttl": 3}
ASYNCHRONOUS = {**OFF, "min_replicas": 0}
# A shorter one where leases that the promoted replica has, too, block the lock for as long.
TestControls = control(
    *fights(Alone, faults.restart_empty, faults.flush, **OFF),
    *fights(Five, faults.restart_majority_empty, faults.restart_in_turn, **OFF),
)
TestReplicaControls = control(
    *fights(Asynchronous, faults.promote_lagging, **OFF | {"ttl": 1.5, "max_ttl": 1.5}),
    *fights(Asynchronous, faults.split_brain),  # an old primary keeps running: quarantine alone prevents no overlaps
    *fights(WithReplicas, faults.restart_primary, **ASYNCHRONOUS),
    *fights(WithReplicas, faults.promote_lagging, **ASYNCHRONOUS | {"ttl": 1.5, "max_ttl": 1.5}),
    *fights(WithReplicas, faults.split_brain, faults.promote_beside_paused, **ASYNCHRONOUS | {"ttl": 1, "max_ttl": 1}),
)
