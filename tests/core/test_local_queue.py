"""The local queue under random schedules with cancellations and lost replies, in virtual time."""

import random

import pytest

from django_redlock.core.algorithms.single_node import SingleNode
from django_redlock.core.flow.requests import BlockThenEval, Fault, SetIfAbsent
from django_redlock.core.keys import keys_for
from django_redlock.core.primitives.base import MUTEX
from django_redlock.core.values import Claim, Lease, new_token
from django_redlock.core.waiting import local_queue
from django_redlock.core.waiting.waiters import AwaitTurn
from django_redlock.errors import LockUnavailable

KEYS = keys_for(b"redlock", b"stock")
LOST = Fault(ConnectionError("no answer"), where="there:6379")
ACTORS, TURNS = 8, 4


class World:
    """One node with one mutex, a local queue, and the schedule."""

    alias, hook, max_ttl = "", None, 300.0

    def __init__(self, seed, monkeypatch):
        self.rng, self.now, self.faults = random.Random(seed), 1000.0, True
        self.held, self.woken, self.waiters = b"", False, set()
        self.orphans, self.believers, self.grants = [], set(), 0
        self.algorithm = SingleNode(self.clock)
        self.gate = local_queue.LocalQueue(self, 3)
        self.actor = 0
        monkeypatch.setattr(local_queue, "caller", lambda: self.actor)
        monkeypatch.setattr(
            local_queue.renewal, "release_later", lambda _store, _primitive, claim: self.orphans.append(claim.token)
        )

    def clock(self):
        return self.now

    def run(self, run):
        """Perform a request as the scripts do."""
        self.now += 0.00005
        micros = round(self.now * 1e6)
        if isinstance(run, SetIfAbsent):
            if self.held:
                return None
            self.held = run.value[:24]
            return True
        name, token = run.script.name, run.args[0]
        if name == "mutex_acquire":
            if self.held not in (b"", token):
                self.waiters.add(token)
                return [0, 30000, micros, b"who"]
            self.waiters.discard(token)
            self.held = token
            return micros
        if name == "mutex_hand_over":
            if self.held not in (run.args[4], token):
                return -1 if self.held else 0
            self.held = token
            return micros
        if name == "waiter_remove":
            self.waiters = {waiter for waiter in self.waiters if not token.startswith(waiter[:16])}
            return 1
        assert name == "mutex_release"
        if self.held != token:
            return -1 if self.held else 0
        self.held, self.woken = b"", True
        return 1

    def free_orphans(self):
        for token in self.orphans:
            if self.held == token:
                self.held, self.woken = b"", True
        self.orphans.clear()


class Actor:
    """Acquires and releases `left` times, as `Lock` does."""

    def __init__(self, world, number):
        self.world, self.number, self.left = world, number, TURNS
        self.flow = self.request = self.claim = self.lease = None
        self.until = 0.0

    def begin(self):
        world = self.world
        if self.lease is None:
            wait = world.rng.choice([0.0001, 0.01, 1e6]) if world.faults else 1e6
            self.claim = Claim("stock", (KEYS,), new_token(), b"%d" % self.number, 30.0)
            self.flow = world.gate.acquire(MUTEX, self.claim, world.now + wait)
        else:
            world.believers.discard(self.number)
            self.flow = world.gate.release(MUTEX, self.lease.claim, 0.0)
        self.send(None)

    def send(self, reply):
        world, world.actor = self.world, self.number
        try:
            self.request = self.flow.send(reply)
            seconds = self.request.seconds if isinstance(self.request, BlockThenEval | AwaitTurn) else 0.0
            self.until = world.now + max(0.0, seconds)
        except StopIteration as end:
            self.end(end.value)
        except LockUnavailable:
            world.orphans.append((self.lease or self).claim.token)
            self.flow = self.lease = None

    def end(self, value):
        world, self.flow = self.world, None
        if self.lease is not None:
            assert value is True
            self.lease, self.left = None, self.left - 1
        elif isinstance(value, Lease):
            if value.valid_until < world.now:  # granted too late: `Lock` frees it and asks again
                world.orphans.append(value.claim.token)
                return
            assert not world.believers, "two hold it at once"
            world.believers.add(self.number)
            self.lease = value
            world.grants += 1

    def cancel(self):
        world, world.actor = self.world, self.number
        self.flow.close()
        world.orphans.append((self.lease or self).claim.token)
        self.flow = self.lease = None

    @property
    def ready(self):
        if self.flow is None:
            return self.left > 0
        if isinstance(self.request, AwaitTurn):
            return not self.request.event._lock.locked() or self.world.now >= self.until
        return not isinstance(self.request, BlockThenEval) or self.world.woken or self.world.now >= self.until

    def step(self):
        world = self.world
        if self.flow is None:
            return self.begin()
        request = self.request
        if isinstance(request, AwaitTurn):
            return self.send(None)
        if isinstance(request, BlockThenEval):
            world.woken, request = False, request.script_call
        if world.faults and world.rng.random() < 0.02:  # lost on the way there, or back: then it is undone
            if world.rng.random() < 0.5:
                world.run(request)
            world.woken = world.woken or not world.held  # what the store loses is not what is looked for here
            if isinstance(request, SetIfAbsent):
                world.orphans.append(request.value[:24])
            elif request.compensation or request.script.name == "mutex_hand_over":
                world.orphans.append(request.args[0])
            return self.send(LOST)
        return self.send(world.run(request))


@pytest.mark.parametrize("seed", range(150))
def test_random_schedules(seed, monkeypatch):
    """At most one actor holds the lock at a time, and in the end each actor has held the lock and
    the queue is empty.
    """
    world = World(seed, monkeypatch)
    actors = [Actor(world, number + 1) for number in range(ACTORS)]
    for step in range(20_000):
        world.faults = step < 400
        if world.rng.random() < 0.2:
            world.free_orphans()
        if not any(actor.left for actor in actors):
            break
        under_way = [actor for actor in actors if actor.flow is not None]
        if world.faults and under_way and world.rng.random() < 0.03:
            world.rng.choice(under_way).cancel()
        ready = [actor for actor in actors if actor.ready]
        if ready:
            world.rng.choice(ready).step()
        elif world.orphans:
            world.free_orphans()
        else:
            world.now = max(world.now, min(actor.until for actor in actors if actor.flow is not None))
    assert not any(actor.left for actor in actors), "somebody waits for ever"
    assert world.grants >= ACTORS * TURNS
    assert world.now < 1000 + local_queue.LEADER_CHECK_SECONDS, "a wake-up was lost: somebody had to look by itself"
    assert world.gate._queues == {}
