"""Interrupts while a thread is started or connections are counted, such as Ctrl-C or a task's soft time limit."""

import select
import threading
import time
from functools import partial

from redis.connection import Connection
from redis.exceptions import ConnectionError as RedisConnectionError

from django_redlock.backends.redis import RedisBackend
from django_redlock.client.connect import AwaitFuture, BoundedCalls
from django_redlock.client.fanout import node_keeper
from django_redlock.client.fanout.broadcast import Broadcast
from django_redlock.client.fanout.broadcast_drivers import FanOut
from django_redlock.client.fanout.node_keeper import NodeKeeper
from django_redlock.client.nodes.first_answer import FirstAnswer
from django_redlock.client.nodes.servers import NodeOptions
from django_redlock.client.pool import ServerPool
from django_redlock.client.urls import node_for
from django_redlock.core.flow.drivers import drive
from django_redlock.core.flow.requests import SendToAll
from django_redlock.core.keys import keys_for
from django_redlock.core.primitives.base import MUTEX
from django_redlock.core.values import Claim, new_token
from django_redlock.history import event_queue
from django_redlock.history.event_queue import EventQueue, EventRecord
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.interrupts import anywhere
from tests.support.service import poll

# Not within the locks of `threading`, which an interrupt may leave unlocked.
STARTS = r"/django_redlock/|/threading\.py:(__init__|start|wait)$"
SERVERS = [ServerPool(Connection, {"host": "127.0.0.1", "port": port}, 10) for port in (1, 2, 3)]


def ends(function):
    """Return whether the function ends in another thread."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(TEST_TIMEOUT)
    return not thread.is_alive()


def test_anywhere_in_a_question():
    """After an interrupt anywhere in a question, the next question is put to all servers."""

    def ask(server):
        if server is SERVERS[0]:
            raise RedisConnectionError("refused")
        return "the master"

    for interrupt in anywhere(STARTS):
        answers = FirstAnswer(ask, lambda _: None, 10)
        answer = partial(drive, perform=AwaitFuture.perform)
        step = interrupt(lambda: answer(answers.get(SERVERS)))  # noqa: B023
        assert answer(answers.get(SERVERS)) == "the master", f"at step {step}"


def test_anywhere_in_a_missed_release(monkeypatch, redis_server):
    """After an interrupt anywhere while a missed release is recorded, the later releases are sent."""
    monkeypatch.setattr(node_keeper, "DOWN_SECONDS", 0.05)
    node = node_for(redis_server.url, NodeOptions(10))
    claim = Claim("stock", (keys_for(b"redlock", b"stock"),), new_token(), b"{}", 10.0)
    for interrupt in anywhere(STARTS):
        keeper = NodeKeeper(node, 10, b"", lambda: True)
        add = partial(keeper.repeat, [MUTEX.release_request(claim)])
        step = interrupt(add)
        add()
        poll(lambda keeper=keeper: keeper._thread is None, timeout=20, what=f"the releases after step {step}")
        assert not keeper._releases
    node.known_pool(b"").clear()


def test_anywhere_in_a_connect(redis_server):
    """After an interrupt anywhere in connect(), other threads can connect to the node."""
    node = node_for(redis_server.url, NodeOptions(10))
    pool = node.known_pool(b"")
    for interrupt in anywhere(least=3):
        keeper = NodeKeeper(node, 10, b"", lambda: True)
        interrupt(keeper.connect)
        assert ends(keeper.connect)
        poll(lambda: pool.idle_connections, timeout=TEST_TIMEOUT, what="a connection")
        poll(lambda keeper=keeper: not keeper.is_connecting, timeout=TEST_TIMEOUT, what="the end of it")
        assert keeper.failure(0.0) is None
        pool.clear()


class SlowPoll:
    """A `select.poll` with methods in Python, at whose begin and end `anywhere` can interrupt."""

    def __init__(self):
        self.poll = select.poll()

    def register(self, number, events):
        self.poll.register(number, events)

    def unregister(self, number):
        self.poll.unregister(number)


def test_anywhere_in_a_broadcast(redis_server):
    """An interrupt anywhere while a request is sent to all nodes reaches the caller, and the next request is served."""
    nodes = FanOut([node_for(redis_server.url, NodeOptions(10))], 10).nodes
    claim = Claim("stock", (keys_for(b"redlock", b"stock"),), new_token(), b"{}", 10.0)
    request = SendToAll([MUTEX.release_request(claim)], lambda replies: None not in replies, b"")

    def send():
        slow = SlowPoll()
        return drive(Broadcast(nodes, request, slow).steps(), lambda seconds: slow.poll.poll(seconds * 1000))

    for interrupt in anywhere(r"/client/fanout/broadcast\.py|/test_interrupts\.py:(un)?register"):
        interrupt(send)
        assert send() == [0]


def test_anywhere_in_an_event(monkeypatch):
    """After an interrupt anywhere while an event is recorded, the later events reach the listeners."""
    monkeypatch.setattr(event_queue, "INTERVAL", 0.01)
    for interrupt in anywhere(STARTS):
        queue, seen = EventQueue(), []
        queue.subscribe("test", lambda records, seen=seen: seen.extend(each.name for each in records))
        step = interrupt(partial(queue.record, EventRecord(time.time(), "acquired", "first")))
        queue.record(EventRecord(time.time(), "acquired", "second"))
        poll(lambda seen=seen: "second" in seen, timeout=20, what=f"the event after step {step}")


def test_anywhere_in_a_bounded_call():
    """After an interrupt anywhere in a call with a timeout, the call does not stay overdue."""
    calls = BoundedCalls()
    for interrupt in anywhere(STARTS):
        step = interrupt(lambda: drive(calls.run(object, 10, id), AwaitFuture.perform))
        poll(lambda: not calls._limits, timeout=20, what=f"the end of the call after step {step}")


def test_anywhere_in_a_wait(redis_url, unique):
    """After an interrupt anywhere in the counts of a wait, other threads can wait on the same server."""
    backend = RedisBackend(redis_url, node_timeout=10)

    def wait():
        assert not backend.lock(unique).acquire(timeout=0.01)

    with backend.lock(unique):
        for interrupt in anywhere(r"/client/pool\.py|/threading\.py:__"):
            step = interrupt(wait)
            assert ends(wait), f"at step {step}"


def test_anywhere_in_a_limited_request(redis_url, unique):
    """An interrupt anywhere in a request leaves no connection of a limited pool counted as in use."""
    backend = RedisBackend(f"{redis_url}?max_connections=2", node_timeout=1)
    for interrupt in anywhere(r"/client/(pool|round_trip)\.py"):
        step = interrupt(backend.lock(unique).locked)
        for _ in range(2):
            assert not backend.lock(unique).locked(), f"at step {step}"
