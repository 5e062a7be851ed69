"""A postponed call starts when the body ends, and its copy with an ETA does not run again."""

import json
import os
import signal
from fractions import Fraction
from functools import partial

import pytest
import redis

from django_redlock.celery import is_duplicate
from django_redlock.celery.messages import Message
from django_redlock.celery.postponed_messages import send
from django_redlock.errors import LockNotAcquired
from tests.celery.conftest import logged
from tests.support.locks import redis_entry
from tests.support.service import poll

NEXT = ["next_one", "next_retry"]
SOON = 15.0  # seconds; the copy with the ETA comes after half a minute at the earliest
LATER = 100.0  # seconds; a copy that comes in the moment of the other's start is tried again after the lease of 60 s


@pytest.fixture
def long_eta(monkeypatch):
    """The next pause of messages in this test is half a minute to a minute."""
    monkeypatch.setattr("django_redlock.celery.task.Message", partial(Message, tries=6))


@pytest.fixture
def kept(records):
    """`kept(name)`: the number of messages that are kept beside the lock."""
    with redis.Redis.from_url(os.environ["CELERY_LOCKS"]) as client:
        yield lambda name: client.hlen(f"redlock:{{{name}}}:put_off")


@pytest.fixture
def put_off(seen, kept):
    """`put_off(task, where, *args, **options)`: a call whose body runs, and another that is put off meanwhile."""

    def send(task, where, *args, **options):
        first = task.apply_async((seen.name,), queue=where)
        seen.wait("start")
        second = task.apply_async((seen.name, *args), **{"queue": where, **options})
        poll(lambda: kept(f"{task.name.rpartition('.')[2]}:{seen.name}"), timeout=60, what="a kept message")
        return first, second

    return send


@pytest.mark.parametrize("pool", ["prefork", "threads"])
@pytest.mark.parametrize("kind", NEXT)
def test_a_postponed_call_starts_when_the_body_ends(tasks, workers, seen, kept, put_off, go, long_eta, kind, pool):
    """It does not start at its ETA half a minute later."""
    first, second = put_off(getattr(tasks, kind), workers(pool))
    go()
    assert first.get(timeout=60) == second.get(timeout=SOON) == seen.name
    end, start = seen.events("end")[0], seen.events("start")[1]
    assert (start["id"], seen.overlap(), kept(f"{kind}:{seen.name}")) == (second.id, [], 0)
    assert 0 < start["at"] - end["at"] < SOON


def test_each_end_sends_one(tasks, queue, seen, kept, go, long_eta):
    name = f"next_retry:{seen.name}"
    results = [tasks.next_retry.apply_async((seen.name,), queue=queue)]
    seen.wait("start")
    results += [tasks.next_retry.apply_async((seen.name, 0.1), queue=queue) for _ in range(4)]
    poll(lambda: kept(name) == 4, timeout=20, what="four kept messages")
    go()
    assert [result.get(timeout=SOON) for result in results] == [seen.name] * 5
    assert (seen.count("start"), seen.overlap()) == (5, [])


@pytest.mark.parametrize("seconds", [0, 1.5], ids=["ended", "running"])
@pytest.mark.parametrize("kind", NEXT)
def test_the_copy_with_the_eta_is_the_same_delivery(tasks, queue, seen, put_off, ignored, go, kind, seconds):
    """The copy with the ETA that arrives during or after the prompt copy is not run, and changes no state."""
    first, second = put_off(getattr(tasks, kind), queue, seconds)
    assert (first.state, second.state) == ("STARTED", "PENDING")
    go()
    assert first.get(timeout=60) == second.get(timeout=60) == seen.name
    ignored(second, 2)
    assert tasks.app.AsyncResult(second.id).state == "SUCCESS"
    assert seen.overlap() == []


def test_a_prompt_copy_that_is_killed_is_not_run_again(tasks, queue, seen, put_off, ignored, go):
    """The call is lost as any whose message was acknowledged: the copy with the ETA does not run it."""
    first, second = put_off(tasks.next_one, queue, 60)
    go()
    first.get(timeout=60)
    start = seen.wait("start", 2)[1]
    assert start["id"] == second.id
    os.kill(start["pid"], signal.SIGKILL)
    ignored(second, 2)


def test_the_prompt_copy_has_the_serializer_of_its_call(tasks, start_worker, own_queue, seen, put_off, go):
    accept = json.dumps({"accept_content": ["json", "pickle"]})
    with start_worker("prefork", own_queue, CELERY_CONF=accept, C_FORCE_ROOT="1"):
        first, second = put_off(tasks.next_one, own_queue, Fraction(1, 10), serializer="pickle")
        go()
        assert first.get(timeout=60) == second.get(timeout=60) == seen.name


def test_every_copy_carries_what_the_first_message_carried(tasks, queue, seen, kept, go):
    """Headers beside a nested one, those of the base class and hidden arguments survive in the prompt copy."""
    sent = {"queue": queue, "headers": {"colour": "red", "headers": {"trace": "t1"}}, "argsrepr": "('***',)"}
    results = [tasks.next_tenant.apply_async((seen.name,), **sent)]
    seen.wait("start")
    results += [tasks.next_tenant.apply_async((seen.name,), **sent)]
    poll(lambda: kept(f"next_tenant:{seen.name}") == 1, timeout=20, what="a kept message")
    go()
    assert [result.get(timeout=60) for result in results] == [seen.name] * 2
    first, second = ({**event, "id": "", "pid": 0, "at": 0} for event in seen.events("carried"))
    assert first == second
    assert (first["tenant"], first["colour"], first["nested"], first["argsrepr"]) == ("one", "red", "t1", "('***',)")


@pytest.mark.parametrize(("kind", "error"), [("next_once", LockNotAcquired), ("next_moody", ValueError)])
def test_a_call_that_has_failed_does_not_start(tasks, queue, records, seen, put_off, ignored, go, kind, error):
    """A call that failed after its last try, or whose ``before_start`` failed, is not run by its prompt copy."""
    fail = records / f"{seen.name}.fail"
    first, second = put_off(getattr(tasks, kind), queue)
    fail.touch()
    assert isinstance(second.get(timeout=60, propagate=False), error)
    fail.unlink()
    go()
    first.get(timeout=60)
    ignored(second)
    assert second.state == "FAILURE"


def test_a_prompt_copy_waits_for_its_eta_while_the_store_is_down(
    tasks, start_worker, own_queue, own_redis, settings, seen, long_eta
):
    """It neither fails nor runs, because the copy with the ETA follows."""
    store = own_redis()
    settings.REDLOCK = {"default": redis_entry(store.url)}
    with start_worker("prefork", own_queue, TESTPROJECT_REDIS=store.url) as worker, store.client() as client:
        tasks.next_open.apply_async((seen.name,), queue=own_queue)
        seen.wait("start")
        second = tasks.next_open.apply_async((seen.name,), queue=own_queue)
        messages = f"redlock:{{next_open:{seen.name}}}:put_off"
        poll(lambda: client.hlen(messages) == 1, timeout=20, what="a kept message")
        (copy,) = client.hvals(messages)
        store.kill()
        send(tasks.app, copy)
        later = f"[{second.id}] is tried again at its ETA only"
        poll(lambda: later in worker.log(100_000) or seen.count("start") > 1, timeout=20, what="the prompt copy")
    assert (seen.count("start"), second.state) == (1, "PENDING")


def test_a_call_on_another_broker_stays_there(tasks, start_worker, workers, seen, put_off, go):
    """The end of a body doesn't send a call of another broker to its own, which has such a queue and worker, too."""
    queue, other = workers("solo"), os.environ["CELERY_BROKER"].replace("/0", "/3")
    with (
        start_worker("prefork", queue, CELERY_BROKER=other) as elsewhere,
        tasks.app.connection_for_write(other) as there,
    ):
        first, second = put_off(tasks.next_retry, queue, connection=there)
        go()
        assert first.get(timeout=60) == second.get(timeout=LATER) == seen.name
        tasks.any_value.apply_async((seen.name,), queue=queue).get(timeout=60)  # comes after all that was in the queue
        assert f"[{second.id}] received" not in workers.running["solo"].log(10_000_000)
        assert f"[{second.id}] received" in elsewhere.log(10_000_000)
    assert seen.count("start") == 2


def test_workers_that_are_different_users_of_a_broker(
    tasks, start_worker, own_queue, queue, seen, put_off, go, long_eta
):
    """The end of a body sends a call at once that a worker with another user of the same broker has put off."""
    broker = os.environ["CELERY_BROKER"]
    with redis.Redis.from_url(broker) as client:
        client.execute_command("ACL", "SETUSER", own_queue, "on", ">secret", "~*", "&*", "+@all")
        with start_worker("prefork", own_queue, CELERY_BROKER=broker.replace("//", f"//{own_queue}:secret@")):
            first, second = put_off(tasks.next_retry, own_queue, queue=queue)
            go()
            assert second.get(timeout=SOON) == first.get(timeout=SOON) == seen.name
        client.acl_deluser(own_queue)


def test_the_worker_of_the_body_is_killed(tasks, start_worker, own_queue, queue, seen, put_off, go, long_eta):
    """The postponed call starts when the lease has ended."""
    with start_worker("prefork", own_queue) as worker:
        _, second = put_off(tasks.next_after, own_queue, queue=queue)
        worker.kill()
        go()
        assert second.get(timeout=SOON + 10) == seen.name


def test_a_large_message_waits_for_its_eta(tasks, queue, worker, seen, kept, go):
    name = f"next_one:{seen.name}"
    tasks.next_one.apply_async((seen.name,), queue=queue)
    seen.wait("start")
    second = tasks.next_one.apply_async((seen.name,), queue=queue, headers={"large": "x" * 20_000})
    logged(worker, f"[{second.id}] ignored")
    assert kept(name) == 0
    go()
    assert second.get(timeout=60) == seen.name


def test_a_replaced_call_is_not_sent_again(tasks, workers, queue, seen, kept, go):
    """A call that is replaced after it was put off is sent no more, and the call that replaced it runs."""
    task, solo, name = tasks.next_replacing, workers("solo"), f"next_replacing:{seen.name}"
    messages = f"redlock:{{{name}}}:put_off"

    def deliveries():  # of the second call, when the worker has ended all that was in its queue
        tasks.any_value.apply_async((seen.name,), queue=solo).get(timeout=60)
        return workers.running["solo"].log(10_000_000).count(f"[{second.id}] received")

    with redis.Redis.from_url(os.environ["CELERY_LOCKS"]) as client:
        first = task.apply_async((seen.name,), queue=queue)
        seen.wait("start")
        second = task.apply_async((seen.name,), queue=solo)
        poll(lambda: kept(name) == 1, timeout=60, what="a kept message")
        (copy,) = client.hvals(messages)
        third = task.apply_async((seen.name,), queue=queue)
        assert is_duplicate(second.get(timeout=60))  # the copy with the ETA
        poll(lambda: third.id.encode() in b"".join(client.hvals(messages)), timeout=60, what="the third call's message")
        before = deliveries()
        assert kept(name) == 1
        send(tasks.app, copy)  # the prompt copy was on its way when its call was replaced
        assert deliveries() == deliveries() == before + 1
        assert kept(name) == 1
        go()
        assert first.get(timeout=60) == third.get(timeout=60) == seen.name
        send(tasks.app, copy)
        assert deliveries() == deliveries() == before + 2
    assert [event["id"] for event in seen.events("start")] == [first.id, third.id]
