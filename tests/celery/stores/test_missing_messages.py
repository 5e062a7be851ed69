"""``redlock_check --tasks``: queued records whose message is no longer in the broker."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from celery import Celery
from django.core.management import call_command
from kombu import Exchange, Queue

from django_redlock import locks
from django_redlock.celery import missing_messages as module
from django_redlock.celery import single_instance_task
from django_redlock.celery.missing_messages import BrokerUnreadable, cancel_lost, lost_calls


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """No minimum age of records, no pause between the two checks, and little time for replies of workers."""
    monkeypatch.setattr(module, "MIN_AGE_SECONDS", 0)
    monkeypatch.setattr(module, "SECOND_LOOK_SECONDS", 0)
    monkeypatch.setattr(module, "INSPECT_SECONDS", 0.1)


@pytest.fixture
def lost(tasks, seen):
    """`lost()`: the ids of the lost calls of this test."""
    return lambda: [each.task_id for each in lost_calls("default", tasks.app) if seen.name in each.name]


def test_purged_queue(tasks, seen, broker, lost):
    """Only the call whose queue was purged is lost, and not those in other queues or with other priorities."""
    purged, kept = (tasks.long.apply_async((seen.name + each,), queue=f"{each}-{seen.name}") for each in ("a", "b"))
    for number in range(3):
        tasks.long.apply_async((f"{seen.name}{number}",), queue=f"b-{seen.name}", priority=number * 3)
    assert lost() == []
    with broker.client() as client:
        assert client.delete(f"a-{seen.name}") == 1
    assert lost() == [purged.id]
    assert cancel_lost("default", lost_calls("default", tasks.app)) >= 1
    assert lost() == []
    assert not tasks.long.apply_async((seen.name + "a",), queue=f"a-{seen.name}").duplicate
    assert tasks.long.apply_async((seen.name + "b",), queue=f"b-{seen.name}").id == kept.id


def test_a_queue_is_read_page_by_page(tasks, seen, lost, monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 2)
    for number in range(5):
        tasks.long.apply_async((f"{seen.name}{number}",), queue=f"q-{seen.name}")
    assert lost() == []


def test_messages_of_workers(tasks, workers, seen, lost, monkeypatch):
    """A message that a worker holds until its ETA is not lost."""
    monkeypatch.setattr(module, "INSPECT_SECONDS", 1.0)  # the worker must reply
    result = tasks.long.apply_async((seen.name,), queue=workers("prefork"), countdown=60)
    seen_by_worker = tasks.executed.apply_async((seen.name, 0), queue=workers("prefork"))
    assert seen_by_worker.get(timeout=60) == seen.name  # it comes after the other
    assert lost() == []
    result.revoke()


@pytest.fixture
def check(tasks, seen, settings, monkeypatch):
    """`check("--fix")`: what redlock_check --tasks prints for the calls of this test."""
    settings.REDLOCK = {"default": {**settings.REDLOCK["default"], "KEY_PREFIX": seen.name}}
    monkeypatch.setattr("celery._state._tls.current_app", tasks.app)

    def run(*args):
        out = io.StringIO()
        with contextlib.suppress(SystemExit):  # it exits with 1 when it warns
            call_command("redlock_check", "--tasks", *args, stdout=out)
        return out.getvalue()

    return run


@pytest.fixture
def call(tasks, seen, broker, check):
    """A queued call whose message is gone from the broker."""
    result = tasks.long.apply_async((seen.name,), queue=f"q-{seen.name}")
    with broker.client() as client:
        client.delete(f"q-{seen.name}")
    return result


def test_command(call, check, seen):
    """redlock_check --tasks warns about lost calls, and with --fix it deletes their records."""

    def row(*args):
        return next(row for row in json.loads(check("--format", "json", *args))["default"] if row["node"] == "tasks")

    before, fixed, after = row(), row("--fix"), row()
    assert [[each["task_id"] for each in found["lost"]] for found in (before, fixed, after)] == [
        [call.id],
        [call.id],
        [],
    ]
    assert [found["fixed"] for found in (before, fixed, after)] == [0, 1, 0]
    assert "without a message in the broker" in before["warnings"][0]
    assert fixed["warnings"] == after["warnings"] == []
    assert locks["default"].describe(f"long:{seen.name}") is None


def test_command_prints_a_sentence(call, check, tasks, seen):
    lost = f"1 queued task without a message in the broker: {tasks.long.name}[{call.id}] (long:{seen.name}); "
    printed = [check(*args).splitlines()[-2:] for args in ((), ("--fix",), ())]
    assert printed == [
        ["warning  default  tasks", f"    {lost}see --fix"],
        ["ok  default  tasks", f"    {lost}records deleted: 1"],
        ["ok  default  tasks", "    no queued task without a message in the broker"],
    ]


def once_on(app):
    """Return a task of the app, with its name."""

    @app.task(name=app.main)
    @single_instance_task
    def once(): ...

    return once


def test_rabbitmq(rabbitmq, unique):
    """On RabbitMQ calls are lost if all queues are empty. Queues with messages can't be read."""
    with Celery(unique, broker=rabbitmq.url, set_as_current=False) as app:
        app.conf.task_default_queue = unique
        app.conf.broker_transport_options = {"confirm_publish": True}  # the next look finds the message
        once = once_on(app)
        result = once.delay()
        with pytest.raises(BrokerUnreadable, match="has 1 messages"):
            lost_calls("default", app)
        assert app.control.purge() == 1
        found = [each for each in lost_calls("default", app) if each.task == unique]
        assert [each.task_id for each in found] == [result.id]
        assert cancel_lost("default", found) == 1
        assert not once.delay().duplicate


def test_delayed_calls_on_rabbitmq(rabbitmq, unique):
    """With quorum queues, calls wait for their ETA in queues of their own, which can't be read either."""
    pytest.importorskip("celery.utils.quorum_queues")  # Celery 5.5 and later send such calls there
    delayed = pytest.importorskip("kombu.transport.native_delayed_delivery")
    with Celery(unique, broker=rabbitmq.url, set_as_current=False) as app, app.connection_for_write() as connection:
        exchange = Exchange(unique, type="topic")
        queue = Queue(unique, exchange, routing_key=unique, queue_arguments={"x-queue-type": "quorum"})
        app.conf.update(task_queues=[queue], task_default_queue=unique, task_default_exchange=unique)
        app.conf.update(task_default_exchange_type="topic", task_default_routing_key=unique)
        app.conf.broker_transport_options = {"confirm_publish": True}  # the next look finds the message
        once = once_on(app)
        channel = connection.default_channel
        try:
            delayed.declare_native_delayed_delivery_exchanges_and_queues(connection, "classic")
            result = once.apply_async(countdown=3600)
            with pytest.raises(BrokerUnreadable, match=r"celery_delayed_\d+' of RabbitMQ has 1 messages"):
                lost_calls("default", app)
        finally:
            for level in range(28):
                channel.queue_delete(delayed.level_name(level))
        assert [each.task_id for each in lost_calls("default", app) if each.task == unique] == [result.id]


def test_other_transports(unique):
    """Other transports raise an error that says that their queues can't be read."""
    with Celery(unique, broker="memory://", set_as_current=False) as app:
        once_on(app).delay()
        with pytest.raises(BrokerUnreadable, match="transport 'memory'"):
            lost_calls("default", app)
