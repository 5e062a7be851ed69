"""When the faults have stopped: everything is free again, and soon."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from django_redlock.core.algorithms.quarantine import replica_quarantine, standalone_quarantine
from django_redlock.core.keys import keys_for

from .replication import SYNC

if TYPE_CHECKING:
    from .scenario import Scenario

MAX_TTL = 4.0
TIMEOUT = 0.25  # of a node
APART = MAX_TTL / 4  # how far a server's clock is off at most, in seconds
LAG = 2  # seconds that a replica may be behind
SOON = 0.02  # seconds after which what was sent without faults has arrived


def at_rest(scenario: Scenario, names: list[str]) -> None:
    """Everything is free ``max_ttl`` after the faults stop, whoever held it or waited for it.

    That is, where all were killed then. Else they come to an end by themselves, and everything is free at once.
    """
    primary = [scenario.replicas.primary] if scenario.replicas else []
    length = MAX_TTL / (1 - scenario.setting.rate) + SOON  # by the slowest of the clocks
    if primary:  # one that was promoted has been told by another's clock when a lease ends, or a quarantine
        length += 2 * APART
    if not scenario.killed:
        # They wait for three ttls and hold for as many; who is paused frees what it has when it goes on.
        paused = max(client._paused_until for client in scenario.clients) - scenario.world.now
        length = max(length, 6 * scenario.ttl + 8 * TIMEOUT, paused + 8 * TIMEOUT)
    _pass(scenario, length)
    if any(client.alive and client.lease for client in scenario.clients):
        scenario.fail("a client does not come to an end")
    for server, name in product(primary or scenario.servers, names):
        if server.model.texts(keys_for(b"sim", name.encode()).lock):
            scenario.fail(f"{name} is not free on {server.name}")
    if primary:  # a quarantine begins when replicas have a copy, and is longer by what they may be behind
        _pass(scenario, SYNC + LAG + 1)
    for name, number in product(names, range(scenario.setting.primitive.limit)):
        (fresh,) = scenario._client(f"fresh-{name}-{number}")
        before = scenario.grants
        scenario.clients.append(fresh)
        # Who can wait is kept up by the dead who are listed as waiters: not for long, since none of them comes.
        fresh.take(name, scenario.world.random.choice((0.0, 1.0)), lambda: None, hold=MAX_TTL)
        scenario.world.run(scenario.world.now + 1)
        if scenario.grants == before:
            scenario.fail(f"{name} is not free")


def _pass(scenario: Scenario, seconds: float) -> None:
    """Let time go by. Servers are touched, as by new connections, which begins a quarantine that is due.

    One that stands alone begins it at once; with replicas it begins when they follow, which takes them a while.
    """
    guard, pause = standalone_quarantine("sim", MAX_TTL), seconds
    if scenario.replicas:
        guard, pause = replica_quarantine("sim", MAX_TTL, LAG, 9, "majority"), 0.5
    end = scenario.world.now + seconds
    while scenario.world.now < end:
        for server in scenario.servers:
            server.run(guard.noop_request())
        scenario.world.run(min(end, scenario.world.now + pause))
