"""Submits through a proxy that resets connections and restarts: no call is lost, and no record outlives its call."""

import itertools
import json
import threading
import time

import pytest

from django_redlock import locks
from django_redlock.core.flow.scripts import script
from django_redlock.errors import LockUnavailable
from tests.support.interrupts import anywhere
from tests.support.locks import redis_entry
from tests.support.proxy import Proxy
from tests.support.service import poll

SENDERS = 8
RESTARTS = 12


@pytest.fixture
def proxied(start, broker, settings):
    """A proxy in front of the lock store."""
    proxy = start(Proxy(broker.url.replace("/0", "/2")))
    settings.REDLOCK = {"near": settings.REDLOCK["default"], "default": redis_entry(proxy.url, node_timeout=1)}
    return proxy


def sent(tasks, queue):
    """The names for which the broker has a message."""
    with tasks.app.connection_for_read() as connection:
        bodies = connection.default_channel.client.lrange(queue, 0, -1)
    return [json.loads(body)["headers"]["argsrepr"].strip("()',") for body in bodies]


def test_a_lost_reply(tasks, own_queue, seen, proxied):
    """delay() has raised and sent nothing, so the next call is no duplicate, also while the record still exists."""
    tasks.executed.apply_async((f"{seen.name}:first",), queue=own_queue)  # the server knows the script now
    lost = proxied.lose_next_reply(script("task_submit").sha)
    proxied.refuse()
    with pytest.raises(LockUnavailable):
        tasks.executed.apply_async((seen.name,), queue=own_queue)
    assert lost.is_set()
    assert locks["near"].describe(f"executed:{seen.name}")
    proxied.restore()
    assert not tasks.executed.apply_async((seen.name,), queue=own_queue).duplicate


def test_an_interrupt_before_the_message(tasks, own_queue, seen):
    """delay() that is interrupted when the record is written, and before the message is sent, leaves no record."""
    for interrupt in anywhere("single_instance/(lifecycle|records)|drivers"):
        step = interrupt(lambda: tasks.executed.apply_async((seen.name,), queue=own_queue))
        if seen.name in sent(tasks, own_queue):
            break
        assert locks["default"].describe(f"executed:{seen.name}") is None, step


def test_many_senders(tasks, own_queue, seen, proxied):
    """Each order whose delay() succeeds has one message. No record is left of an order whose delay() failed."""
    over, numbers = threading.Event(), itertools.count()
    accepted, failed = set(), set()

    def send():
        while not over.is_set():
            name = f"{seen.name}:{next(numbers)}"
            for last in (False, True):  # a failed call is repeated once, and then given up
                try:
                    tasks.executed.apply_async((name,), queue=own_queue)
                except LockUnavailable:
                    if last:
                        failed.add(name)
                    time.sleep(0.05)
                else:
                    accepted.add(name)
                    break

    senders = [threading.Thread(target=send) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    try:
        for _ in range(RESTARTS):
            before = len(accepted)
            poll(lambda before=before: len(accepted) > before + 4 * SENDERS, timeout=60, what="orders")
            proxied.refuse()
            proxied.cut()
            time.sleep(0.2)
            proxied.restore()
    finally:
        over.set()
        for sender in senders:
            sender.join(60)
    messages = sent(tasks, own_queue)
    assert failed
    assert sorted(messages) == sorted(accepted)
    poll(
        lambda: {each.name.partition(":")[2] for each in locks["near"].held(f"executed:{seen.name}:*")} == accepted,
        timeout=30,
        what="the end of the records of calls that failed",
    )
