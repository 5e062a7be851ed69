"""The faults. Their times and victims are random within limits."""

import random
import shutil
import time
from collections.abc import Callable
from typing import Any

from django_redlock.core.flow.scripts import script
from testproject.redis_server import RedisServer
from tests.faults.arena import CLIENTS, Arena
from tests.faults.places import WithReplicas, WithSentinels
from tests.support.service import revive

Fault = Callable[[Any, random.Random], None]


# ── what is done to servers ──────────────────────────────────────────────────────────────────


def _some(arena: Arena, rng: random.Random, most: int = 5) -> list[RedisServer]:
    return rng.sample(arena.servers, rng.randint(1, min(most, len(arena.servers))))


def _forget_disk(server: RedisServer) -> None:
    (server.dir / "dump.rdb").unlink(missing_ok=True)
    shutil.rmtree(server.dir / "appendonlydir", ignore_errors=True)
    (server.dir / "appendonly.aof").unlink(missing_ok=True)


def _restart(servers: list[RedisServer], rng: random.Random) -> None:
    for server in servers:
        server.kill()
        _forget_disk(server)
    time.sleep(rng.choice((0, 0, 0.1)))
    for server in servers:
        server.start()


def restart_empty(arena: Arena, rng: random.Random) -> None:
    """Kill any number of servers with `kill -9` at once, and restart them without data."""
    _restart(_some(arena, rng), rng)


def restart_majority_empty(arena: Arena, rng: random.Random) -> None:
    """Kill a majority of the servers with `kill -9` at once, and restart them without data."""
    _restart(rng.sample(arena.servers, len(arena.servers) // 2 + 1), rng)


def restart_in_turn(arena: Arena, rng: random.Random) -> None:
    """Restart all servers without data, quickly one after another."""
    for server in rng.sample(arena.servers, len(arena.servers) // 2 + 1):
        _restart([server], rng)


def restart_old_data(arena: Arena, rng: random.Random) -> None:
    """Kill servers with `kill -9`, and restart them with the data of an earlier moment."""
    servers = _some(arena, rng)
    for server in servers:
        with server.client() as client:
            client.save()
    time.sleep(rng.uniform(0.05, 0.3))
    for server in servers:
        server.kill()
        server.start()
        _forget_disk(server)


def restart_with_aof(arena: Arena, rng: random.Random) -> None:
    """Kill servers with `kill -9`, and restart them with all data."""
    for server in _some(arena, rng):
        server.kill()
        time.sleep(rng.choice((0, 0.1)))
        server.start()


def pause_servers(arena: Arena, rng: random.Random) -> None:
    """Stop servers with SIGSTOP for up to twice the ttl. They execute the requests in their sockets afterwards."""
    servers = _some(arena, rng)
    for server in servers:
        server.pause()
    time.sleep(rng.uniform(0.05, 1.0))
    for server in servers:
        server.resume()


def lose_minority(arena: Arena, rng: random.Random) -> None:
    """Pause one of five servers, and kill or disconnect another. A majority is up all the time."""
    first, second = rng.sample(range(len(arena.servers)), 2)
    arena.servers[first].pause()
    if rng.random() < 0.5:
        arena.servers[second].kill()
    else:
        arena.proxies[second].drop()
    time.sleep(rng.uniform(0.1, 1.5))
    arena.servers[first].resume()
    revive(arena.servers[second])
    arena.proxies[second].restore()


def flush(arena: Arena, rng: random.Random) -> None:
    """Send FLUSHALL, which deletes locks and quarantine markers."""
    for server in _some(arena, rng):
        with server.client() as client:
            client.flushall()


def flush_scripts(arena: Arena, rng: random.Random) -> None:
    for _ in range(5):
        for server in arena.servers:
            with server.client() as client:
                client.script_flush()
        time.sleep(rng.uniform(0, 0.05))


# ── what is done to clients ──────────────────────────────────────────────────────────────────


def pause_clients(arena: Arena, rng: random.Random) -> None:
    """Stop clients with SIGSTOP for longer than the ttl, at any moment."""
    for client in rng.sample(arena.clients, rng.randint(1, CLIENTS - 1)):
        client.pause()
        time.sleep(rng.uniform(0.2, 1.2))
        client.resume()


def kill_clients(arena: Arena, rng: random.Random) -> None:
    for client in rng.sample(arena.clients, rng.randint(1, CLIENTS - 1)):
        arena.kill(client)


def let_fork(arena: Arena, rng: random.Random) -> None:
    """Let time pass. Holders fork, and their children try to release the parents' locks."""
    time.sleep(rng.uniform(0.3, 0.8))


# ── what is done to the network ──────────────────────────────────────────────────────────────


def lose_replies(arena: Arena, rng: random.Random) -> None:
    """Lose some replies to acquire, extend and release. Their connections are closed."""
    shas = [script("mutex_release").sha, script("mutex_extend").sha, b"EVALSHA"]
    for _ in range(rng.randint(3, 10)):
        for proxy in rng.sample(arena.proxies, rng.randint(1, len(arena.proxies))):
            proxy.lose_next_reply(rng.choice(shas)).wait(0.2)


def cut_connections(arena: Arena, rng: random.Random) -> None:
    for _ in range(rng.randint(3, 10)):
        for proxy in rng.sample(arena.proxies, rng.randint(1, len(arena.proxies))):
            proxy.cut()
        time.sleep(rng.uniform(0, 0.05))


def swallow(arena: Arena, rng: random.Random) -> None:
    """Drop requests, replies or both for up to twice the ttl. The connections stay open."""
    proxies = rng.sample(arena.proxies, rng.randint(1, len(arena.proxies)))
    for proxy in proxies:
        proxy.drop(*rng.choice((("requests",), ("replies",), ())))
    time.sleep(rng.uniform(0.05, 1.0))
    for proxy in proxies:
        proxy.restore()


def deliver_late(arena: Arena, rng: random.Random) -> None:
    """Hold requests or replies back for up to twice the ttl, then deliver them."""
    proxies = rng.sample(arena.proxies, rng.randint(1, len(arena.proxies)))
    for proxy in proxies:
        proxy.hold(rng.choice(("requests", "replies")))
    time.sleep(rng.uniform(0.05, 1.0))
    for proxy in proxies:
        proxy.restore()


def slow_down(arena: Arena, rng: random.Random) -> None:
    """Delay messages by about the node timeout."""
    for proxy in arena.proxies:
        proxy.delay(rng.uniform(0, 0.08))
    time.sleep(rng.uniform(0.2, 0.8))
    for proxy in arena.proxies:
        proxy.restore()


def everything(arena: Arena, rng: random.Random) -> None:
    """Apply three random faults of servers, clients and the network, one after another."""
    for fault in rng.sample(
        (restart_empty, restart_old_data, pause_servers, flush, pause_clients, lose_replies, swallow, deliver_late), 3
    ):
        fault(arena, rng)


# ── what is done to replication ──────────────────────────────────────────────────────────────


def promote_lagging(arena: WithReplicas, rng: random.Random) -> None:
    """Promote a replica that was cut off and does not have the lock. The primary is dead."""
    group = arena.group
    lagging, other = rng.sample(group.replicas, 2)
    group.cut_off(lagging)
    time.sleep(arena.options["ttl"] * rng.uniform(0.3, 2))  # leases that the replica has may have ended
    group.primary.kill()
    former = group.promote(lagging)
    arena.lead()
    group.follow(other)
    former.start()
    group.follow(former)


def split_brain(arena: WithReplicas, rng: random.Random) -> None:
    """Promote a replica that does not have the lock. One client stays connected to the old primary, which runs on."""
    group = arena.group
    lagging, other = rng.sample(group.replicas, 2)
    group.cut_off(lagging)
    time.sleep(rng.uniform(0, 0.4))
    former = group.promote(lagging)
    arena.lead(*rng.sample(range(CLIENTS), CLIENTS - 1))
    time.sleep(rng.uniform(0, 0.2))
    group.follow(other)
    time.sleep(arena.options["max_ttl"] + rng.uniform(0, 0.3))
    arena.lead()
    group.follow(former)


def promote_beside_paused(arena: WithReplicas, rng: random.Random) -> None:
    """Pause the primary, promote a replica, and resume the primary, which executes the requests in its sockets."""
    group = arena.group
    group.primary.pause()
    time.sleep(rng.uniform(0, 0.3))
    chosen, other = rng.sample(group.replicas, 2)
    former = group.promote(chosen)
    arena.lead(*rng.sample(range(CLIENTS), CLIENTS - 1))
    if rng.random() < 0.5:
        group.follow(other)
        former.resume()
    else:
        former.resume()
        group.follow(other)
    time.sleep(arena.stretch * rng.uniform(0.1, 0.4))  # one client still uses the former primary
    arena.lead()
    group.follow(former)


def promote_twice(arena: WithReplicas, rng: random.Random) -> None:
    """Fail over to a replica and back to the first primary, whose marker has its own id."""
    group = arena.group
    first, lagging = group.primary, rng.choice(group.replicas)
    others = [server for server in group.replicas if server is not lagging]
    group.cut_off(lagging)
    time.sleep(rng.uniform(0, 0.3))
    group.promote(lagging)
    group.follow(first)
    group.promote(first)
    arena.lead()
    for server in (lagging, *others):
        group.follow(server)


def restart_primary(arena: WithReplicas, rng: random.Random) -> None:
    """Restart the primary without data. Its replicas follow it and lose their data too."""
    group = arena.group
    group.primary.kill()
    _forget_disk(group.primary)
    group.primary.start()
    for replica in list(group.replicas):
        group.follow(replica)


def cut_off_replicas(arena: WithReplicas, rng: random.Random) -> None:
    replicas = rng.sample(arena.group.replicas, rng.randint(1, 2))
    arena.group.cut_off(*replicas)
    time.sleep(rng.uniform(0.2, 1.5))
    arena.group.rejoin(*replicas)


def sentinels_fail_over(arena: WithSentinels, rng: random.Random) -> None:
    """Kill or pause the master until Sentinel has promoted a replica, then bring it back."""
    group = arena.group
    master = group.master
    hang = rng.random() < 0.5
    master.pause() if hang else master.kill()
    group.wait_for_new_master(master)
    time.sleep(rng.uniform(0, 0.3))
    master.resume() if hang else master.start()


LOSING_DATA = restart_empty, restart_old_data, flush
OF_CLIENTS = pause_clients, kill_clients, let_fork
OF_PROCESSES = pause_servers, flush_scripts, *OF_CLIENTS
OF_CONNECTIONS = lose_replies, cut_connections, swallow, deliver_late
OF_THE_NETWORK = {lose_minority, *OF_CONNECTIONS, slow_down, everything}
OF_REPLICATION = promote_lagging, split_brain, promote_beside_paused, promote_twice, restart_primary, cut_off_replicas
