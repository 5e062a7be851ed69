"""Checks that all locks become free soon after the faults have stopped."""

from itertools import product
from typing import Any

from django_redlock.core.algorithms.quarantine import replica_quarantine, standalone_quarantine
from django_redlock.core.keys import keys_for

from .replication import SYNC

MAX_TTL = 4.0
TIMEOUT = 0.25  # seconds of a node timeout
APART = MAX_TTL / 4  # largest offset of a server's clock, in seconds
LAG = 2  # seconds that a replica may lag
RATE = 0.004  # deviation of a clock's rate; two clocks differ by less than the allowed drift
SOON = 0.02  # seconds within which a message without faults arrives


def at_rest(scenario: Any, names: list[str]) -> None:
    """Check that all locks are free after the end of the faults. If all clients were killed, their leases must expire
    within ``max_ttl``. Otherwise the clients end their work first.
    """
    primary = [scenario.replicas.primary] if scenario.replicas else []
    length = MAX_TTL / (1 - RATE) + SOON  # by the slowest of the clocks
    if primary:  # a promoted server got the ends of leases and quarantines from another server's clock
        length += 2 * APART
    if not scenario.killed:
        # Clients wait for at most three ttls or until the end of a pause, and then hold for at most three ttls.
        paused = max(client.paused_until for client in scenario.clients) - scenario.world.now
        held = max(3 * scenario.ttl, paused) + 3 * scenario.ttl + 8 * TIMEOUT
        length = max(length, held) + scenario.setting.threads.keeps
    _pass(scenario, length)
    if any(client.alive and client.lease for client in scenario.clients):
        scenario.fail("a client does not come to an end")
    for server, name in product(primary or scenario.servers, names):
        if server.model.texts(keys_for(b"sim", name.encode()).lock):
            scenario.fail(f"{name} is not free on {server.name}")
    if primary:  # a quarantine begins after the full copy, and lasts longer by the lag
        _pass(scenario, SYNC + LAG + 1)
    for name, number in product(names, range(scenario.setting.primitive.limit)):
        fresh = scenario.new_thread(f"fresh-{name}-{number}")
        before = scenario.grants
        scenario.clients.append(fresh)
        # Dead clients that are still listed as waiters delay a new waiter, but only for a short time.
        fresh.take([name], scenario.world.random.choice((0.0, 1.0)), lambda: None, MAX_TTL)
        scenario.world.run(scenario.world.now + 1)
        if scenario.grants == before:
            scenario.fail(f"{name} is not free")


def _pass(scenario: Any, seconds: float) -> None:
    """Let ``seconds`` pass. Servers get requests, as from new connections, which start a quarantine that is due. A
    standalone server starts its quarantine at once, a primary starts it when its replicas follow.
    """
    guard, pause = standalone_quarantine("sim", MAX_TTL), seconds
    if scenario.replicas:
        guard, pause = replica_quarantine("sim", MAX_TTL, LAG, 9, "majority"), 0.5
    end = scenario.world.now + seconds
    while scenario.world.now < end:
        for server in scenario.servers:
            server.run(guard.noop_request())
        scenario.world.run(min(end, scenario.world.now + pause))
