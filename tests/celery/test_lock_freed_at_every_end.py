"""Every end of a task releases its lock at once. All leases last 60 s, far longer than a test waits."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
from celery.canvas import StampingVisitor
from celery.concurrency.base import BasePool
from kombu.exceptions import OperationalError

from testproject.redis_server import RedisServer
from tests.support.service import poll

HOWS = ["return", "exception", "ignore", "reject", "exit"]


@pytest.mark.parametrize("kind", ["ends", "ends_late", "ends_running"])
@pytest.mark.parametrize("how", HOWS)
def test_end_of_the_body(tasks, workers, seen, free, kind, how):
    """Return, exception, Ignore, Reject and SystemExit: the next call may be sent and runs."""
    queue = workers("prefork")
    task = getattr(tasks, kind)
    task.apply_async((seen.name, how), queue=queue)
    seen.wait("start")
    free(f"{kind}:{seen.name}")
    again = task.apply_async((seen.name, "return"), queue=queue)
    assert not again.duplicate
    assert again.get(timeout=30) == seen.name
    assert seen.count("start") == 2


@pytest.mark.parametrize("how", ["return", "exception", "ignore"])
@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_end_of_the_body_in_other_pools(tasks, workers, seen, free, pool, how):
    """The same where no process of its own runs the task."""
    tasks.ends.apply_async((seen.name, how), queue=workers(pool))
    seen.wait("start")
    free(f"ends:{seen.name}")


def test_end_before_the_body(tasks, workers, seen, free):
    """A before_start that raises fails the task: its queued record goes, though nothing has run."""
    tasks.unready.apply_async((seen.name,), queue=workers("prefork"))
    seen.wait("before_start")
    free(f"unready:{seen.name}")


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_result_store_down_at_start(tasks, start_worker, own_redis, seen, free, pool):
    """With task_track_started, Celery fails a task before its body when it can't store that."""
    queue, results = f"q-{seen.name}", own_redis()
    options = {"retry_policy": {"max_retries": 0}}
    conf = json.dumps({"task_track_started": True, "result_backend_transport_options": options})
    with start_worker(pool, queue, CELERY_RESULTS=results.url, CELERY_CONF=conf):
        results.kill()
        tasks.long.apply_async((seen.name,), queue=queue)
        free(f"long:{seen.name}")
    assert seen.count("start") == 0


def test_lease_that_the_backend_does_not_give(tasks, seen, held):
    """A ttl above max_ttl is said at submit, and nothing is sent or left."""
    with pytest.raises(ValueError, match="at most 300 s"):
        tasks.too_long.apply_async((seen.name,), queue="nobody")
    assert held(f"too_long:{seen.name}") is None


def test_soft_time_limit(tasks, workers, seen, free):
    """The body hears of it, and its end frees the lock."""
    tasks.softly.apply_async((seen.name,), queue=workers("prefork"))
    seen.wait("soft")
    free(f"softly:{seen.name}")


def test_hard_time_limit(tasks, workers, seen, free, held):
    """The main process kills the child, and frees the lock when it is dead."""
    tasks.limited.apply_async((seen.name, "return", 30), queue=workers("prefork"))
    seen.wait("start")
    assert held(f"limited:{seen.name}").owner.extra["state"] == "running"
    free(f"limited:{seen.name}")


def test_revoked_while_queued(tasks, workers, seen, free, held):
    """A task that is revoked before it starts is discarded with its lock."""
    queue = workers("prefork")
    result = tasks.long.apply_async((seen.name,), queue=queue, countdown=1)
    assert held(f"long:{seen.name}")
    result.revoke()
    free(f"long:{seen.name}")
    assert seen.count("start") == 0


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads"])
def test_revoked_before_its_eta(tasks, start_worker, seen, free, pool):
    """A task that a worker keeps for later is free when it is revoked, not when its time comes; so is a retry's."""
    queue = f"q-{seen.name}"
    with start_worker(pool, queue) as worker:
        later = tasks.long.apply_async((seen.name,), queue=queue, countdown=300)
        retry = tasks.retries.apply_async((seen.name,), {"countdown": 300}, queue=queue)
        poll(lambda: worker.log(100_000).count("] received") == 3, timeout=10, what="both, and the retry")
        later.revoke()
        retry.revoke()
        free(f"long:{seen.name}")
        free(f"retries:{seen.name}")
        assert tasks.long.apply_async((seen.name,), queue=queue).get(timeout=30) == seen.name
    assert seen.count("start") == 2


@pytest.mark.parametrize("command", ["terminate", "revoke_by_stamped_headers"])
def test_revoked_before_its_eta_by_another_command(tasks, workers, seen, free, held, command):
    """Celery has three commands that revoke. What they don't name keeps its lock."""

    class Stamps(StampingVisitor):
        def on_signature(self, sig, **headers):
            return {"mark": seen.name}

    queue, other = workers("prefork"), f"{seen.name}-other"
    call = tasks.long.si(seen.name).set(queue=queue)
    call.stamp(Stamps())
    result = call.apply_async(countdown=300)
    last = tasks.long.apply_async((other,), queue=queue, countdown=300)
    options = {"task_id": result.id, "signal": "TERM"} if command == "terminate" else {"headers": {"mark": [seen.name]}}
    log = workers.running["prefork"].log
    poll(lambda: f"{last.id}] received" in log(100_000), timeout=10, what="both")
    tasks.app.control.broadcast(command, arguments=options)
    free(f"long:{seen.name}")
    assert held(f"long:{other}")


def test_revoked_before_the_eta_of_a_retry_that_came_early(tasks, start_worker, seen, free):
    """The worker has received the retry before the run that sent it is over, and forgets that id's request then."""
    queue = f"q-{seen.name}"
    with start_worker("prefork", queue) as worker:
        result = tasks.retries_on.apply_async((seen.name, 1), {"countdown": 300}, queue=queue)
        poll(lambda: worker.log(100_000).count("] received") == 2, timeout=10, what="the retry")
        assert seen.count("end") == 0
        poll(lambda: f"{result.id}] succeeded" in worker.log(100_000), timeout=10, what="the end of the first run")
        result.revoke()
        free(f"retries_on:{seen.name}")


def test_revoked_while_its_rate_limit_holds_it_back(tasks, start_worker, seen, free, held):
    """What a worker keeps until its rate limit lets it through is free when it is revoked, not an hour later."""
    queue, other = f"q-{seen.name}", f"{seen.name}-other"
    with start_worker("prefork", queue) as worker:
        assert tasks.rated.apply_async((other,), queue=queue).get(timeout=30) == other
        result, last = (tasks.rated.apply_async((name,), queue=queue) for name in (seen.name, other))
        poll(lambda: f"{last.id}] received" in worker.log(100_000), timeout=10, what="both")
        result.revoke()
        free(f"rated:{seen.name}")
        assert held(f"rated:{other}")
    assert seen.count("start") == 0


def test_terminated_while_it_runs(tasks, workers, seen, free):
    """Revoke with terminate: free when the child is dead."""
    result = tasks.long.apply_async((seen.name, 30), queue=workers("prefork"))
    seen.wait("start")
    result.revoke(terminate=True, signal="SIGKILL")
    free(f"long:{seen.name}")


def test_terminated_while_it_waits_for_its_lock(tasks, start_worker, seen, free, held):
    """A process that is killed within the fence is in nobody's way, and the holder keeps its lock."""
    queue, name = f"q-{seen.name}", f"waiting:{seen.name}"
    with start_worker("prefork", queue):
        first = tasks.waiting.apply_async((seen.name, 3), queue=queue)
        seen.wait("start")
        second = tasks.waiting.apply_async((seen.name,), queue=queue)
        poll(lambda: held(name).waiters == 1, timeout=10, what="one who waits")
        second.revoke(terminate=True, signal="SIGKILL")
        assert first.get(timeout=30) == seen.name
        assert tasks.waiting.apply_async((seen.name,), queue=queue).get(timeout=30) == seen.name
        free(name)
    assert seen.count("start") == 2


def test_a_signal_that_does_not_kill_frees_nothing(tasks, start_worker, seen, free, held):
    """A body that catches what revoke sends it goes on with its lock, whatever the main process waits for."""
    queue = f"q-{seen.name}"
    # A worker of its own: the pool takes such a child for terminated from then on, whatever it dies of.
    with start_worker("prefork", queue):
        result = tasks.stubborn.apply_async((seen.name, 12), queue=queue)
        seen.wait("start")
        result.revoke(terminate=True, signal="SIGUSR1")
        seen.wait("soft")
        poll(lambda: seen.count("end") == 1 or held(f"stubborn:{seen.name}") is None, timeout=20, what="an end")
        assert seen.count("end") == 1
        free(f"stubborn:{seen.name}")


def test_revoking_a_call_that_does_not_fit_the_task(tasks, start_worker, seen):
    """A message whose arguments make no key is discarded, and the worker goes on."""
    queue = f"q-{seen.name}"
    with start_worker("prefork", queue) as worker:
        tasks.app.send_task(tasks.long.name, (1, 2, 3, 4), queue=queue, countdown=0.5).revoke()
        poll(lambda: "its lock is not released" in worker.log(100_000), timeout=10, what="the discarded message")
        assert tasks.long.apply_async((seen.name,), queue=queue).get(timeout=30) == seen.name
        assert "Error in timer" not in worker.log(100_000)


@pytest.mark.parametrize("kind", ["long", "limited"])
def test_killed_greenlet(tasks, start_worker, seen, free, kind):
    """Terminated or out of time, on a pool without processes: the body frees its lock, and the worker goes on."""
    pytest.importorskip("gevent")
    pool = pytest.importorskip("celery.concurrency.gevent", exc_type=ImportError)
    if kind == "long" and pool.TaskPool.terminate_job is BasePool.terminate_job:
        pytest.skip("this Celery can't terminate greenlets")
    queue, task = f"q-{seen.name}", getattr(tasks, kind)
    with start_worker("gevent", queue) as worker:
        result = task.apply_async((seen.name, *((30,) if kind == "long" else ("return", 30))), queue=queue)
        seen.wait("start")
        if kind == "long":
            result.revoke(terminate=True)
        free(f"{kind}:{seen.name}")
        assert "Traceback" not in worker.log(100_000)


def test_revoking_a_duplicate_frees_nothing(tasks, workers, seen, held):
    """A member of a group that waits behind the holder may be revoked: the holder keeps its lock."""
    from celery import group

    queue = workers("prefork")
    first = tasks.long.apply_async((seen.name, 1.5), queue=queue)
    seen.wait("start")
    members = group(tasks.long.s(seen.name).set(queue=queue, countdown=0.5) for _ in range(2)).apply_async()
    for member in members.results:
        member.revoke()
    assert first.get(timeout=30) == seen.name
    assert seen.count("start") == 1


def test_expired(tasks, workers, seen, free):
    """A task that expires in the queue is discarded with its lock."""
    tasks.long.apply_async((seen.name,), queue=workers("prefork"), countdown=1, expires=0.5)
    free(f"long:{seen.name}")
    assert seen.count("start") == 0


@pytest.mark.parametrize("form", [float, str, datetime])
def test_expired_without_a_worker(tasks, seen, held, form):
    """What can't run any more is in nobody's way, also when nobody discards the message, or RabbitMQ does."""
    when = tasks.app.now() + timedelta(seconds=90)
    expires = {float: 90.0, str: when.isoformat(), datetime: when}[form]
    tasks.long.apply_async((seen.name,), queue="nobody", expires=expires)
    assert 0 < held(f"long:{seen.name}").remaining <= 90


@pytest.mark.parametrize("error", [OperationalError, KeyboardInterrupt])
def test_broker_down_at_publish(tasks, seen, held, monkeypatch, error):
    """What was not sent has no lock, whatever interrupted the sending."""
    with RedisServer() as gone:
        url = gone.url
    if error is KeyboardInterrupt:

        def interrupted(*args, **kwargs):
            raise KeyboardInterrupt

        monkeypatch.setattr(tasks.app.amqp, "send_task_message", interrupted)
    with tasks.app.connection_for_write(url) as connection, pytest.raises(error):
        tasks.long.apply_async((seen.name,), connection=connection)
    assert held(f"long:{seen.name}") is None


def test_broker_down_at_publish_keeps_what_another_call_took(tasks, seen, held):
    """A call that is sent without a record, as a canvas' member, frees nobody else's when it can't be sent."""
    first = tasks.long.apply_async((seen.name,), queue="nobody", countdown=60)
    with RedisServer() as gone:
        url = gone.url
    with tasks.app.connection_for_write(url) as connection, pytest.raises(OperationalError):
        tasks.long.apply_async((seen.name,), connection=connection, root_id="r")
    assert held(f"long:{seen.name}").owner.extra["task_id"] == first.id


def test_control_a_plain_task_is_sent_again_while_it_runs(tasks, workers, seen):
    """Without the decorator nothing says that a call is under way."""
    queue = workers("prefork")
    results = [tasks.ends_plain.apply_async((seen.name, "return"), queue=queue) for _ in range(2)]
    assert [result.get(timeout=30) for result in results] == [seen.name] * 2
    assert seen.count("start") == 2
