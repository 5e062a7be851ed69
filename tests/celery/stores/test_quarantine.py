"""A server that may have forgotten tasks: with ``quarantine=True`` running tasks are restored, and none starts."""

import pytest

from django_redlock import locks
from django_redlock.celery.messages import Message
from django_redlock.core.flow.drivers import drive
from django_redlock.errors import LockUnavailable
from django_redlock.single_instance.call import new_delivery_id
from django_redlock.single_instance.lifecycle import end_flow
from django_redlock.single_instance.records import ended_mark
from tests.support.locks import redis_entry


@pytest.fixture
def store(own_redis, settings):
    """A lock store with quarantine, in service."""
    server = own_redis()
    settings.REDLOCK = {"default": redis_entry(server.url, quarantine=True)}
    locks["default"].arm()
    return server


@pytest.fixture
def begun(tasks, store):
    """`begun(task, name)`: the lock of a body that has begun."""

    def begin(task, name):
        guard, task_id = task.redlock, f"id-{name}"
        lock = guard.body_lock(guard.call_of(task, Message(guard.name(task, (name,), {}), new_delivery_id(), task_id)))
        drive(lock.acquire_flow(0), lock.store.perform)
        return lock

    return begin


def test_running_bodies_are_restored(tasks, begun, store, seen, held):
    bodies = [begun(tasks.long, seen.name + suffix) for suffix in ("-a", "-b")]
    with store.client() as client:
        client.flushall()
    leases = [(body.hold.lease, 60.0) for body in bodies]
    outcomes = drive(bodies[0].store.algorithm.extend_many(bodies[0].primitive, leases), bodies[0].store.perform)
    assert [outcome.claim.token for outcome in outcomes] == [body.token.encode() for body in bodies]
    for body in bodies:
        (owner,) = held(body.name).holders
        assert owner.extra == {"state": "running", "task_id": body.running.call.task_id}
        drive(end_flow(body, "ended"), body.store.perform)
        with store.client() as client:
            assert client.sismember(*ended_mark(body.running.call))


def test_nothing_is_submitted(tasks, begun, store, seen, held):
    """No call can be submitted during the quarantine, because it would run beside a restored body."""
    body = begun(tasks.long, seen.name)
    with store.client() as client:
        client.flushall()
    with pytest.raises(LockUnavailable, match="in quarantine"):
        tasks.long.apply_async((seen.name,), queue="nobody")
    assert held(body.name) is None
    body.extend()
    assert held(body.name).owner.extra["state"] == "running"


def test_a_queued_record_in_old_data_blocks_no_restore(tasks, begun, store, seen, held):
    old = tasks.long.apply_async((seen.name,), queue="nobody")
    with store.client() as client:
        record = client.dump(f"redlock:{{long:{seen.name}}}")
        client.delete(f"redlock:{{long:{seen.name}}}")
        body = begun(tasks.long, seen.name)
        client.flushall()
        client.restore(f"redlock:{{long:{seen.name}}}", 60_000, record)
    body.extend()
    assert {owner.extra["task_id"] for owner in held(body.name).holders} == {old.id, f"id-{seen.name}"}
