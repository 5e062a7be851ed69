"""Stores that can and that can't keep the records of tasks, and what a worker and ``manage.py check`` say."""

from functools import partial

import pytest
from django.core import checks

from django_redlock import locks
from django_redlock.celery import is_duplicate, single_instance_task
from django_redlock.celery.messages import Message
from django_redlock.core.flow.drivers import drive
from django_redlock.core.locks.hold import Hold
from django_redlock.errors import LockUnavailable
from django_redlock.single_instance.call import new_delivery_id
from django_redlock.single_instance.lifecycle import end_flow
from testproject.redis_server import RedisServer
from tests.celery.conftest import deliver_again
from tests.support.group import Group
from tests.support.locks import entry_of
from tests.support.replicas import Replicated
from tests.support.service import poll

NOWHERE = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]


def use(settings, kind, location, **options):
    settings.REDLOCK = {"default": entry_of(kind, location, **options)}


@pytest.fixture
def primary(start, settings):
    """A primary with two replicas, which keeps the records."""
    group = start(Replicated(2))
    use_primary(settings, group.primary)
    assert list(locks["default"].arm().values()) == ["armed"]
    return group


def use_primary(settings, server):
    use(settings, "replica.ReplicaBackend", server.url, node_timeout=5, ttl=3, max_ttl=4)


def arm_anew(server):
    """Take the server into service with the present settings."""
    with server.client() as client:
        client.delete("redlock:marker")
    locks["default"].arm()


def body(task, name, task_id):
    """Return the handle of a body of that task."""
    message = Message(task.redlock.name(task, (name,), {}), new_delivery_id(), task_id)
    return task.redlock.body_lock(task.redlock.call_of(task, message))


def begin(lock):
    return drive(lock.acquire_flow(0.0), lock.store.perform)


def test_a_submit_counts_when_the_replicas_have_it(tasks, primary, seen, settings):
    """After a failover the promoted replica has the record of a submit."""
    first = tasks.unhurried.apply_async((seen.name,), queue="nobody")
    for replica in primary.replicas:
        with replica.client() as client:
            read = partial(client.hkeys, f"redlock:{{unhurried:{seen.name}}}")
            poll(lambda: read() == [first.id.encode()], timeout=20, what="the record on each replica")  # noqa: B023
    chosen, other = primary.replicas
    primary.promote(chosen)
    primary.follow(other)
    use_primary(settings, chosen)
    later = []

    def answered():
        try:
            later.append(tasks.unhurried.apply_async((seen.name,), queue="nobody"))
        except LockUnavailable:  # in quarantine
            return False
        return True

    poll(answered, timeout=40, what="the end of the quarantine")
    assert (later[0].duplicate, later[0].id) == (True, first.id)


def test_a_submit_that_no_replica_has_is_taken_back(tasks, primary, seen, held):
    primary.cut_off(*primary.replicas)
    with pytest.raises(LockUnavailable):
        tasks.unhurried.apply_async((seen.name,), queue="nobody")
    primary.rejoin(*primary.replicas)
    assert held(f"unhurried:{seen.name}") is None
    assert not tasks.unhurried.apply_async((seen.name,), queue="nobody").duplicate


def test_a_worker_with_a_primary_and_replicas(tasks, primary, start_worker, own_queue, seen, settings, go):
    """On a primary with replicas a real worker handles submit, duplicate, body and postponed call."""
    url = primary.primary.url
    use(settings, "replica.ReplicaBackend", url, node_timeout=5)
    arm_anew(primary.primary)
    environment = {"TESTPROJECT_PRIMARY": url, "DJANGO_SETTINGS_MODULE": "tests.celery.replica_settings"}
    with start_worker("prefork", own_queue, **environment):
        first = tasks.next_one.apply_async((seen.name,), queue=own_queue)
        seen.wait("start")
        second, third = (tasks.next_one.apply_async((seen.name,), queue=own_queue) for _ in range(2))
        go()
        assert first.get(timeout=60) == second.get(timeout=60) == seen.name
    assert (is_duplicate(second), is_duplicate(third), seen.count("start")) == (False, True, 2)


def test_while_executing_with_a_limit_where_nodes_vote(tasks, start, seen, settings):
    group = start(Group(RedisServer() for _ in range(3)))
    use(settings, "redlock.RedlockBackend", [server.url for server in group.servers], node_timeout=5, quarantine=False)
    bodies = [body(tasks.three, seen.name, f"id-{number}") for number in range(5)]
    outcomes = [begin(lock) for lock in bodies]
    assert [isinstance(outcome, Hold) for outcome in outcomes] == [True] * 3 + [False] * 2
    message = Message(bodies[4].name, new_delivery_id(), "id-4")
    tasks.three.redlock.cancel(tasks.three.redlock.call_of(tasks.three, message))  # there is no record
    drive(end_flow(bodies[0], "ended"), bodies[0].store.perform)
    assert isinstance(begin(bodies[3]), Hold)
    for lock in bodies[1:4]:
        drive(end_flow(lock, "ended"), lock.store.perform)


def test_redelivered_while_it_runs_where_nodes_vote(tasks, start, start_worker, own_queue, seen, go):
    """A message that is redelivered while its body runs is postponed, so the result is that of the body."""
    nodes = " ".join(server.url for server in start(Group(RedisServer() for _ in range(3))).servers)
    with start_worker("prefork", own_queue, app="tests.celery.quorum_app", CELERY_NODES=nodes) as worker:
        result = tasks.app.send_task("tests.celery.quorum_app.late", (seen.name,), queue=own_queue)
        seen.wait("start")
        deliver_again(tasks.app)
        poll(lambda: " ignored" in worker.log(100_000) or result.ready(), timeout=60, what="a redelivery")
        assert not result.ready()
        go()
        assert result.get(timeout=60) == seen.name
        seen.wait("end", 2)  # nodes that vote don't remember that the message has ended
    events = [event["event"] for event in seen.events()]
    assert events == ["start", "end"] * 2


def test_a_worker_refuses_to_start_with_what_its_store_does_not_support(start_worker, unique):
    quorum = {"TESTPROJECT_QUORUM": "1", "TESTPROJECT_NODES": " ".join(NOWHERE)}
    refused = (
        r"ended with code 1:\n(.|\n)*task tests\.celery\.app\.\w+: store 'default': RedlockBackend keeps no records"
    )
    with pytest.raises(RuntimeError, match=refused), start_worker("solo", unique, **quorum):
        pass


@pytest.mark.parametrize(
    ("options", "backend", "location", "refused"),
    [
        ({}, "redlock.RedlockBackend", NOWHERE, True),
        ({"mode": "while_executing", "limit": 3}, "redlock.RedlockBackend", NOWHERE, False),
        ({"mode": "while_executing", "limit": 3}, "zookeeper.ZooKeeperBackend", "127.0.0.1:1", True),
        ({"mode": "while_executing"}, "zookeeper.ZooKeeperBackend", "127.0.0.1:1", False),
        ({}, "replica.ReplicaBackend", NOWHERE[0], False),
        ({}, "redis.RedisBackend", NOWHERE[0], False),
        ({}, "locmem.LocMemBackend", "", False),
        ({}, "dummy.DummyBackend", "", False),
    ],
)
def test_manage_py_check(settings, unique, options, backend, location, refused):
    """manage.py check reports each task that its store can't protect, without a request to the store."""
    use(settings, backend, location)

    def checked(): ...

    checked.__qualname__ = unique
    single_instance_task(using="default", **options)(checked)
    messages = [each for each in checks.run_checks(tags=["redlock"]) if unique in each.msg]
    assert [each.id for each in messages] == ["redlock.E005"] * refused
