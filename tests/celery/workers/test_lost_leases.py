"""A body whose lease is lost, or whose release gets no reply, leaves no queued record behind."""

import contextlib
import json

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.background.work import background
from django_redlock.core.flow.drivers import drive
from django_redlock.core.flow.requests import Fault
from django_redlock.core.keys import keys_for
from django_redlock.core.options import LockOptions
from django_redlock.core.process.mutex import state_mutex
from django_redlock.single_instance.call import MODES, TaskCall, new_delivery_id
from django_redlock.single_instance.lifecycle import end_flow
from django_redlock.single_instance.records import BodyLock, submit
from tests.support.service import poll


@pytest.fixture
def store(proxy):
    with contextlib.closing(RedisBackend(proxy.url, node_timeout=2)) as store:
        yield store


@pytest.fixture
def call(unique):
    keys = keys_for(b"redlock", unique.encode())
    return TaskCall(unique, keys, "settle", "a", new_delivery_id(), MODES["until_executed"], 1, 600.0, 600.0)


def send(store, call):
    return drive(submit(call, False, False, store.algorithm), store.perform)


def start(store, call):
    """Start the body of the call. Returns its lock and the outcome."""
    lock = BodyLock(store, call, LockOptions(60.0))
    return lock, drive(lock.acquire_flow(0.0), store.perform)


def running(store, call):
    """Send the call and start its body. Returns its lock, and a function that waits for the release in background."""
    assert send(store, call) is None
    lock, hold = start(store, call)
    token = hold.lease.claim.token
    return lock, lambda: poll(lambda: token not in background.orphans, timeout=60, what="a release in the background")


def assert_ended(store, call):
    """Assert that a redelivered message of the call does not run, and that another call is sent."""
    assert json.loads(start(store, call)[1].holder) == {"state": "ended"}
    assert store.describe(call.name) is None
    assert send(store, call._replace(task_id="b", delivery_id=new_delivery_id())) is None


def test_a_lost_lease_queues_nothing(store, call):
    """When the renewal gives up a lease that the store still has, the record is removed, as at the lease's end."""
    lock, released = running(store, call)
    lock.hold.mark_lost("the lease ran out")
    released()
    assert store.describe(call.name) is None
    assert drive(end_flow(lock, "ended"), store.perform) is None
    assert_ended(store, call)


def test_an_end_during_an_extension_queues_nothing(store, call, proxy):
    """If neither the end of a body nor the renewal before it gets a reply, the end is repeated as it was."""
    lock, released = running(store, call)
    hold = lock.hold
    extension = hold.begin_renewal()
    proxy.drop("requests")
    with state_mutex:  # the release in the background waits until both have failed
        assert drive(end_flow(lock, "ended"), store.perform) is None
        hold.on_extended(extension, Fault(TimeoutError()))
    proxy.restore()
    released()
    assert_ended(store, call)
