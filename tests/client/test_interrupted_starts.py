"""Interrupts while a background thread is being started, such as Ctrl-C or a task's soft time limit."""

import itertools
import time
from functools import partial

from redis.connection import Connection
from redis.exceptions import ConnectionError as RedisConnectionError

from django_redlock.client.connect import AwaitFuture, BoundedCalls
from django_redlock.client.fanout import node_keeper
from django_redlock.client.fanout.node_keeper import NodeKeeper
from django_redlock.client.nodes.first_answer import FirstAnswer
from django_redlock.client.pool import ServerPool
from django_redlock.client.urls import node_for
from django_redlock.core.flow.drivers import drive
from django_redlock.core.keys import keys_for
from django_redlock.core.primitives.base import MUTEX
from django_redlock.core.values import Claim, new_token
from django_redlock.history import event_queue
from django_redlock.history.event_queue import EventQueue, EventRecord
from tests.support.interrupts import interrupted
from tests.support.service import poll

# Not within the locks of `threading`, which an interrupt may leave unlocked.
STARTS = r"/django_redlock/|/threading\.py:(__init__|start|wait)$"
SERVERS = [ServerPool(Connection, {"host": "127.0.0.1", "port": port}, 10) for port in (1, 2, 3)]


def ask(server):
    """Answer for each server but the first."""
    if server is SERVERS[0]:
        raise RedisConnectionError("refused")
    return "the master"


def answer(answers, servers):
    return drive(answers.get(servers), AwaitFuture.perform)


def test_anywhere_in_a_question():
    """After an interrupt anywhere in a question, the next question is put to all servers."""
    for step in itertools.count():
        answers = FirstAnswer(ask, lambda _: None, 10)
        struck = interrupted(partial(answer, answers, SERVERS), step, STARTS)
        assert answer(answers, SERVERS) == "the master", f"at step {step}"
        if not struck:
            break
    assert step > 5


def test_anywhere_in_a_missed_release(monkeypatch, redis_server):
    """After an interrupt anywhere while a missed release is recorded, the later releases are sent."""
    monkeypatch.setattr(node_keeper, "DOWN_SECONDS", 0.05)
    node = node_for(redis_server.url, 10)
    claim = Claim("stock", (keys_for(b"redlock", b"stock"),), new_token(), b"{}", 10.0)
    for step in itertools.count():
        keeper = NodeKeeper(node, 10, b"", lambda: True)
        add = partial(keeper.repeat, [MUTEX.release_request(claim)])
        struck = interrupted(add, step, STARTS)
        add()
        poll(lambda: keeper._thread is None, timeout=20, what=f"the releases after step {step}")  # noqa: B023
        assert not keeper._releases
        if not struck:
            break
    node.known_pool(b"").clear()
    assert step > 5


def test_anywhere_in_an_event(monkeypatch):
    """After an interrupt anywhere while an event is recorded, the later events reach the listeners."""
    monkeypatch.setattr(event_queue, "INTERVAL", 0.01)
    for step in itertools.count():
        queue, seen = EventQueue(), []
        queue.subscribe("test", lambda records, seen=seen: seen.extend(each.name for each in records))
        struck = interrupted(partial(queue.record, EventRecord(time.time(), "acquired", "first")), step, STARTS)
        queue.record(EventRecord(time.time(), "acquired", "second"))
        poll(lambda: "second" in seen, timeout=20, what=f"the event after step {step}")  # noqa: B023
        if not struck:
            break
    assert step > 5


def test_anywhere_in_a_bounded_call():
    """After an interrupt anywhere in a call with a timeout, the call does not stay overdue."""
    calls = BoundedCalls()
    for step in itertools.count():
        struck = interrupted(lambda: drive(calls.run(object, 10, id), AwaitFuture.perform), step, STARTS)
        poll(lambda: not calls._limits, timeout=20, what=f"the end of the call after step {step}")
        if not struck:
            break
    assert step > 5
