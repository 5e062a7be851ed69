"""What goes wrong, at random within its bounds."""

from __future__ import annotations

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
    """`kill -9`, and back without data: any number of servers at once."""
    _restart(_some(arena, rng), rng)


def restart_majority_empty(arena: Arena, rng: random.Random) -> None:
    """The same with a majority, at once."""
    _restart(rng.sample(arena.servers, len(arena.servers) // 2 + 1), rng)


def restart_in_turn(arena: Arena, rng: random.Random) -> None:
    """One after the other, quickly, back without data."""
    for server in rng.sample(arena.servers, len(arena.servers) // 2 + 1):
        _restart([server], rng)


def restart_old_data(arena: Arena, rng: random.Random) -> None:
    """`kill -9`, and back with the data of an earlier moment."""
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
    """`kill -9`, and back with every write."""
    for server in _some(arena, rng):
        server.kill()
        time.sleep(rng.choice((0, 0.1)))
        server.start()


def pause_servers(arena: Arena, rng: random.Random) -> None:
    """SIGSTOP for up to twice the ttl; what lies in their sockets is carried out when they go on."""
    servers = _some(arena, rng)
    for server in servers:
        server.pause()
    time.sleep(rng.uniform(0.05, 1.0))
    for server in servers:
        server.resume()


def lose_minority(arena: Arena, rng: random.Random) -> None:
    """Of five one hangs, and another dies or can't be reached, at the same time: a majority is up all the while."""
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
    """FLUSHALL: locks and marker are gone."""
    for server in _some(arena, rng):
        with server.client() as client:
            client.flushall()


def flush_scripts(arena: Arena, rng: random.Random) -> None:
    """SCRIPT FLUSH, several times."""
    for _ in range(5):
        for server in arena.servers:
            with server.client() as client:
                client.script_flush()
        time.sleep(rng.uniform(0, 0.05))


# ── what is done to clients ──────────────────────────────────────────────────────────────────


def pause_clients(arena: Arena, rng: random.Random) -> None:
    """SIGSTOP beyond the ttl, at any moment of what they do."""
    for client in rng.sample(arena.clients.members, rng.randint(1, CLIENTS - 1)):
        with client.paused():
            time.sleep(rng.uniform(0.2, 1.2))


def kill_clients(arena: Arena, rng: random.Random) -> None:
    """`kill -9` of all but one."""
    for client in rng.sample(arena.clients.members, rng.randint(1, CLIENTS - 1)):
        arena.clients.kill(client)


def let_fork(arena: Arena, rng: random.Random) -> None:
    """Nothing but time: holders fork, and their children try to free what is not theirs."""
    time.sleep(rng.uniform(0.3, 0.8))


# ── what is done to the network ──────────────────────────────────────────────────────────────


def lose_replies(arena: Arena, rng: random.Random) -> None:
    """Replies to acquire, extend and release get lost, here and there; their connections end."""
    shas = [script("mutex_release").sha, script("mutex_extend").sha, b"EVALSHA"]
    for _ in range(rng.randint(3, 10)):
        for proxy in rng.sample(arena.proxies, rng.randint(1, len(arena.proxies))):
            proxy.lose_next_reply(rng.choice(shas)).wait(0.2)


def cut_connections(arena: Arena, rng: random.Random) -> None:
    """All connections end, again and again."""
    for _ in range(rng.randint(3, 10)):
        for proxy in rng.sample(arena.proxies, rng.randint(1, len(arena.proxies))):
            proxy.cut()
        time.sleep(rng.uniform(0, 0.05))


def swallow(arena: Arena, rng: random.Random) -> None:
    """Requests, replies or both vanish for up to twice the ttl; nobody is told."""
    proxies = rng.sample(arena.proxies, rng.randint(1, len(arena.proxies)))
    for proxy in proxies:
        proxy.drop(*rng.choice((("requests",), ("replies",), ())))
    time.sleep(rng.uniform(0.05, 1.0))
    for proxy in proxies:
        proxy.restore()


def deliver_late(arena: Arena, rng: random.Random) -> None:
    """Requests or replies are held back for up to twice the ttl, and delivered then."""
    proxies = rng.sample(arena.proxies, rng.randint(1, len(arena.proxies)))
    for proxy in proxies:
        proxy.hold(rng.choice(("requests", "replies")))
    time.sleep(rng.uniform(0.05, 1.0))
    for proxy in proxies:
        proxy.restore()


def slow_down(arena: Arena, rng: random.Random) -> None:
    """A network as slow as the node timeout."""
    for proxy in arena.proxies:
        proxy.delay(rng.uniform(0, 0.08))
    time.sleep(rng.uniform(0.2, 0.8))
    for proxy in arena.proxies:
        proxy.restore()


def everything(arena: Arena, rng: random.Random) -> None:
    """Several of these, one after another."""
    for fault in rng.sample(
        (restart_empty, restart_old_data, pause_servers, flush, pause_clients, lose_replies, swallow, deliver_late), 3
    ):
        fault(arena, rng)


# ── what is done to replication ──────────────────────────────────────────────────────────────


def promote_lagging(arena: WithReplicas, rng: random.Random) -> None:
    """A replica that was cut off, and has not heard of the lock, is promoted; the primary is dead."""
    group = arena.group
    lagging, other = rng.sample(group.replicas, 2)
    group.cut_off(lagging)
    time.sleep(rng.uniform(0, 2 * arena.options["ttl"]))  # what it knows of may have ended
    group.primary.kill()
    former = group.promote(lagging)
    arena.lead()
    group.follow(other)
    former.start()
    group.follow(former)


def split_brain(arena: WithReplicas, rng: random.Random) -> None:
    """A replica that has not heard of the lock is promoted; the old primary goes on, and one client stays with it."""
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
    """The primary hangs, a replica is promoted, the primary goes on with what lies in its sockets."""
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
    time.sleep(rng.uniform(0, 0.3))
    arena.lead()
    group.follow(former)


def promote_twice(arena: WithReplicas, rng: random.Random) -> None:
    """A failover there and back, to a primary whose marker names itself."""
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
    """The primary is back at once, empty; its replicas follow it, and forget as well."""
    group = arena.group
    group.primary.kill()
    _forget_disk(group.primary)
    group.primary.start()
    for replica in list(group.replicas):
        group.follow(replica)


def cut_off_replicas(arena: WithReplicas, rng: random.Random) -> None:
    """One or both replicas can't be reached for a while."""
    replicas = rng.sample(arena.group.replicas, rng.randint(1, 2))
    arena.group.cut_off(*replicas)
    time.sleep(rng.uniform(0.2, 1.5))
    arena.group.rejoin(*replicas)


def sentinels_fail_over(arena: WithSentinels, rng: random.Random) -> None:
    """The master dies or hangs, and Sentinels promote a replica; it comes back when they have."""
    group = arena.group
    master = group.master
    hang = rng.random() < 0.5
    master.pause() if hang else master.kill()
    group.wait_for_new_master(master)
    time.sleep(rng.uniform(0, 0.3))
    master.resume() if hang else master.start()


OF_THE_NETWORK = {lose_minority, lose_replies, cut_connections, swallow, deliver_late, slow_down, everything}
