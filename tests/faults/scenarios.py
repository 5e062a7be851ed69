"""The scenarios: each is a kind of store and a fault.

`CONTROLS` are the same faults without protection. In a control the checker must find overlaps.
"""

from typing import Any, NamedTuple

from tests.faults import faults
from tests.faults.arena import Arena
from tests.faults.faults import Fault
from tests.faults.places import Alone, AloneWithAof, Asynchronous, Five, FiveWithAof, WithReplicas, WithSentinels


class Scenario(NamedTuple):
    """A kind of store, a fault, and options. `available`: a majority is up all the time."""

    arena: type[Arena]
    fault: Fault
    options: dict[str, Any] = {}
    available: bool = False

    @property
    def forks(self) -> bool:
        return self.fault is faults.let_fork

    @property
    def proxied(self) -> bool:
        return self.fault in faults.OF_THE_NETWORK


_PATIENT = {"ttl": 4, "max_ttl": 4, "node_timeout": 3}
SCENARIOS: dict[str, Scenario] = {
    **{
        f"{place}-{fault.__name__}": Scenario(arena, fault)
        for place, arena in (("redis", Alone), ("redlock", Five))
        for fault in (
            faults.restart_empty,
            faults.restart_old_data,
            faults.pause_servers,
            faults.flush,
            faults.flush_scripts,
            faults.pause_clients,
            faults.kill_clients,
            faults.let_fork,
            faults.lose_replies,
            faults.cut_connections,
            faults.swallow,
            faults.deliver_late,
            faults.slow_down,
            faults.everything,
        )
    },
    # Without quarantine no script acquires a free lock, and no data may be lost.
    **{
        f"unguarded-{fault.__name__}": Scenario(Alone, fault, {"quarantine": False})
        for fault in (
            faults.pause_servers,
            faults.flush_scripts,
            faults.pause_clients,
            faults.kill_clients,
            faults.let_fork,
            faults.lose_replies,
            faults.cut_connections,
            faults.swallow,
            faults.deliver_late,
        )
    },
    "redlock-restart_majority_empty": Scenario(Five, faults.restart_majority_empty),
    "redlock-restart_in_turn": Scenario(Five, faults.restart_in_turn),
    # Long timeouts: a server that waits for a processor on a busy machine has not failed.
    "redlock-lose_minority": Scenario(Five, faults.lose_minority, _PATIENT, available=True),
    "redis-promote_lagging": Scenario(Asynchronous, faults.promote_lagging),
    "redis-promote_twice": Scenario(Asynchronous, faults.promote_twice),
    "redis-restart_with_aof": Scenario(AloneWithAof, faults.restart_with_aof),
    "redlock-restart_with_aof": Scenario(FiveWithAof, faults.restart_with_aof),
    **{
        f"replica-{fault.__name__}": Scenario(WithReplicas, fault)
        for fault in (
            faults.promote_lagging,
            faults.split_brain,
            faults.promote_beside_paused,
            faults.promote_twice,
            faults.restart_primary,
            faults.cut_off_replicas,
            faults.lose_replies,
            faults.cut_connections,
            faults.swallow,
            faults.deliver_late,
            faults.pause_clients,
            faults.kill_clients,
            faults.let_fork,
        )
    },
    "sentinel-sentinels_fail_over": Scenario(WithSentinels, faults.sentinels_fail_over),
}

# With asynchronous replicas and an old primary that keeps running, the quarantine alone does not prevent overlaps. With
# a long ttl the first holder notices its loss late.
_OFF = {"quarantine": False, "ttl": 3, "max_ttl": 3}
_ASYNCHRONOUS = {**_OFF, "min_replicas": 0}
_LAGGING = {"ttl": 1.5, "max_ttl": 1.5}  # shorter, because leases that the replica has block the lock for as long
CONTROLS: dict[str, Scenario] = {
    "redis-restart_empty": Scenario(Alone, faults.restart_empty, _OFF),
    "redis-flush": Scenario(Alone, faults.flush, _OFF),
    "redis-promote_lagging": Scenario(Asynchronous, faults.promote_lagging, {**_OFF, **_LAGGING}),
    "redis-split_brain": Scenario(Asynchronous, faults.split_brain),
    "redlock-restart_majority_empty": Scenario(Five, faults.restart_majority_empty, _OFF),
    "redlock-restart_in_turn": Scenario(Five, faults.restart_in_turn, _OFF),
    "replica-promote_lagging": Scenario(WithReplicas, faults.promote_lagging, {**_ASYNCHRONOUS, **_LAGGING}),
    "replica-split_brain": Scenario(WithReplicas, faults.split_brain, _ASYNCHRONOUS),
    "replica-promote_beside_paused": Scenario(WithReplicas, faults.promote_beside_paused, _ASYNCHRONOUS),
    "replica-restart_primary": Scenario(WithReplicas, faults.restart_primary, _ASYNCHRONOUS),
}
