"""Every end of a task releases its lock: at once, or within the lease if the process was killed."""

import json
from datetime import datetime, timedelta
from itertools import product

import pytest
from celery.concurrency.base import BasePool
from celery.exceptions import SoftTimeLimitExceeded
from kombu.exceptions import OperationalError

from django_redlock import locks
from django_redlock.celery import single_instance_task
from django_redlock.celery.messages import HEADER, Message
from django_redlock.core.flow.requests import EvalScript
from django_redlock.single_instance.call import new_delivery_id
from tests.celery.conftest import logged, run_here
from tests.support.service import poll

NOWHERE = "redis://127.0.0.1:1/0"
SURVIVED = ["return", "exception", "ignore"]  # by a worker without child processes


@pytest.mark.parametrize(
    ("pool", "kind", "how"),
    [
        *product(["prefork"], ["ends", "ends_late", "ends_running"], [*SURVIVED, "reject", "exit"]),
        *product(["threads", "solo"], ["ends"], SURVIVED),
    ],
)
def test_end_of_the_body(tasks, workers, seen, free, pool, kind, how):
    """After return, exception, Ignore, Reject and SystemExit the lock is free, and the next call is sent and runs."""
    task, queue = getattr(tasks, kind), workers(pool)
    task.apply_async((seen.name, how), queue=queue)
    seen.wait("start")
    free(f"{kind}:{seen.name}")
    again = task.apply_async((seen.name, "return"), queue=queue)
    assert not again.duplicate
    assert again.get(timeout=60) == seen.name
    assert seen.count("start") == 2


def test_end_before_the_body(tasks, queue, seen, free):
    tasks.unready.apply_async((seen.name,), queue=queue)
    seen.wait("before_start")
    free(f"unready:{seen.name}")


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_result_store_down_at_start(tasks, start_worker, own_queue, own_redis, seen, free, pool):
    """A task that Celery fails before its body, because the result store is down, releases its lock."""
    results = own_redis()
    options = {"retry_policy": {"max_retries": 0}}
    conf = json.dumps({"task_track_started": True, "result_backend_transport_options": options})
    with start_worker(pool, own_queue, CELERY_RESULTS=results.url, CELERY_CONF=conf):
        results.kill()
        tasks.long.apply_async((seen.name,), queue=own_queue)
        free(f"long:{seen.name}")
    assert seen.count("start") == 0


def test_ttl_above_max_ttl_is_refused_at_submit(tasks, seen, held):
    with pytest.raises(ValueError, match="at most 300 s"):
        tasks.too_long.apply_async((seen.name,), queue="nobody")
    assert held(f"too_long:{seen.name}") is None


@pytest.mark.parametrize(("kind", "args", "event"), [("softly", (), "soft"), ("limited", ("return", 30), "start")])
def test_time_limit(tasks, queue, seen, free, kind, args, event):
    """The soft limit ends a body, which releases its lock. The hard one kills it, and the main process does."""
    getattr(tasks, kind).apply_async((seen.name, *args), queue=queue)
    seen.wait(event)
    free(f"{kind}:{seen.name}")


def test_soft_time_limit_before_the_body_of_a_call_that_was_put_off(tasks, seen, monkeypatch):
    """The limit interrupts the request between the grant and the body: the lock is released, the body doesn't run."""
    store, task = locks["default"], tasks.executed
    message = Message(f"executed:{seen.name}", new_delivery_id(), seen.name, tries=1)
    perform = store.perform

    def interrupted(request):
        reply = perform(request)
        if isinstance(request, EvalScript) and request.script.name == "task_end" and not request.args[1]:
            raise SoftTimeLimitExceeded
        return reply

    monkeypatch.setattr(store, "perform", interrupted)
    run_here(task, seen.name, **{HEADER: list(message)})
    assert isinstance(task.AsyncResult(seen.name).result, SoftTimeLimitExceeded)
    assert (store.held(message.name), seen.count("start")) == ([], 0)


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads"])
def test_revoked_before_its_eta(tasks, workers, seen, free, pool):
    """A task or retry with an ETA that is revoked in a worker is free at once, not at the ETA."""
    queue = workers(pool)
    later = tasks.long.apply_async((seen.name,), queue=queue, countdown=300)
    retry = tasks.retries.apply_async((seen.name,), {"countdown": 300}, queue=queue)
    logged(workers.running[pool], f"[{later.id}] received")
    logged(workers.running[pool], f"[{retry.id}] received", 2)
    later.revoke()
    retry.revoke()
    free(f"long:{seen.name}")
    free(f"retries:{seen.name}")
    assert tasks.long.apply_async((seen.name,), queue=queue).get(timeout=60) == seen.name
    assert seen.count("start") == 2


def test_revoked_before_the_eta_of_a_retry_that_came_early(tasks, queue, worker, seen, free, go):
    result = tasks.retries_on.apply_async((seen.name, tasks.UNTIL_GO), {"countdown": 300}, queue=queue)
    logged(worker, f"[{result.id}] received", 2)  # the retry, too
    go()
    logged(worker, f"{result.id}] succeeded")
    result.revoke()
    free(f"retries_on:{seen.name}")


def test_revoked_while_its_rate_limit_holds_it_back(tasks, start_worker, own_queue, seen, free, held):
    other = f"{seen.name}-other"
    with start_worker("prefork", own_queue) as worker:
        assert tasks.rated.apply_async((other,), queue=own_queue).get(timeout=60) == other
        result, last = (tasks.rated.apply_async((name,), queue=own_queue) for name in (seen.name, other))
        logged(worker, f"{last.id}] received")
        result.revoke()
        free(f"rated:{seen.name}")
        assert held(f"rated:{other}")
    assert seen.count("start") == 0


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_revoking_a_running_call_ends_no_period(tasks, workers, seen, go, pool):
    """until_expired: revoking a call whose body runs stops nothing, so its period goes on."""
    queue, call = workers(pool), (seen.name, tasks.UNTIL_GO)
    result = tasks.once_an_hour.apply_async(call, queue=queue)
    seen.wait("start")
    command = workers.running[pool].process.args
    worker = command[command.index("-n") + 1]  # another worker, to which the task is unknown, would store REVOKED
    inspect = tasks.app.control.inspect([worker], timeout=20, limit=1)
    poll(lambda: result.id in str(inspect.active()), timeout=60, what="a worker that knows that it runs")
    assert tasks.app.control.revoke(result.id, destination=[worker], reply=True, timeout=20)
    assert tasks.once_an_hour.apply_async(call, queue=queue).id == result.id
    go()
    assert result.get(timeout=60) == seen.name
    assert tasks.once_an_hour.apply_async(call, queue=queue).id == result.id
    assert seen.count("start") == 1


def test_terminated_while_it_waits_for_its_lock(tasks, queue, seen, started, free, held, go):
    """Killing a process that waits for its task's lock leaves no waiter, and the holder keeps its lock."""
    name = f"waiting:{seen.name}"
    first = started(tasks.waiting, queue)
    second = tasks.waiting.apply_async((seen.name,), queue=queue)
    poll(lambda: held(name).waiters == 1, timeout=30, what="one who waits")
    second.revoke(terminate=True, signal="SIGKILL")
    poll(lambda: second.state == "REVOKED", timeout=30, what="the signal")
    go()
    assert first.get(timeout=60) == seen.name
    assert tasks.waiting.apply_async((seen.name,), queue=queue).get(timeout=60) == seen.name
    free(name)
    assert seen.count("start") == 2


def test_revoking_a_call_that_does_not_fit_the_task(tasks, queue, worker, seen):
    """A revoked message whose arguments don't fit the task is discarded, and the worker goes on."""
    wrong = tasks.app.send_task(tasks.long.name, (1, 2, 3, 4), queue=queue, countdown=30)
    wrong.revoke()
    logged(worker, f"[{wrong.id}]: its lock is not released")
    assert tasks.long.apply_async((seen.name,), queue=queue).get(timeout=60) == seen.name
    assert "Error in timer" not in worker.log(10_000_000)


@pytest.mark.parametrize("kind", ["long", "limited"])
def test_killed_greenlet(tasks, workers, seen, free, kind):
    """A greenlet that is terminated or out of time releases its lock, and the worker goes on."""
    pytest.importorskip("gevent")
    pool = pytest.importorskip("celery.concurrency.gevent", exc_type=ImportError)
    if kind == "long" and pool.TaskPool.terminate_job is BasePool.terminate_job:
        pytest.skip("this Celery can't terminate greenlets")
    task, queue = getattr(tasks, kind), workers("gevent")
    result = task.apply_async((seen.name, *((30,) if kind == "long" else ("return", 30))), queue=queue)
    seen.wait("start")
    if kind == "long":
        result.revoke(terminate=True)
    free(f"{kind}:{seen.name}")
    assert "Traceback" not in workers.running["gevent"].log(10_000_000)


def test_revoking_a_duplicate_frees_nothing(tasks, queue, seen, started, held, go):
    from celery import group

    first = started(tasks.long, queue)
    members = group(tasks.long.s(seen.name).set(queue=queue, countdown=0.5) for _ in range(2)).apply_async()
    for member in members.results:
        member.revoke()
    poll(lambda: all(member.ready() for member in members.results), timeout=30, what="the end of the duplicates")
    assert held(f"long:{seen.name}")
    go()
    assert first.get(timeout=60) == seen.name
    assert seen.count("start") == 1


def test_expired(tasks, queue, seen, free):
    tasks.long.apply_async((seen.name,), queue=queue, countdown=1, expires=0.5)
    free(f"long:{seen.name}")
    assert seen.count("start") == 0


@pytest.mark.parametrize("form", [float, str, datetime])
def test_expired_without_a_worker(tasks, seen, held, form):
    """The record of a task that expires ends with it, even if no worker discards the message."""
    when = tasks.app.now() + timedelta(seconds=90)
    expires = {float: 90.0, str: when.isoformat(), datetime: when}[form]
    tasks.long.apply_async((seen.name,), queue="nobody", expires=expires)
    assert 0 < held(f"long:{seen.name}").remaining <= 90


def test_call_without_the_expiry_of_its_task(tasks, seen, held):

    @tasks.app.task(name=seen.name, expires=90)
    @single_instance_task(key=seen.name)
    def expiring(): ...

    expiring.apply_async(queue="nobody", expires=None)
    assert held(seen.name).remaining > 90


@pytest.fixture
def no_broker(tasks):
    """A connection to a broker that is down, without the seconds between the attempts of kombu."""
    with tasks.app.connection_for_write(NOWHERE) as connection:
        connection.transport_options = {**connection.transport_options, "interval_start": 0, "max_retries": 1}
        yield connection


@pytest.mark.parametrize("error", [OperationalError, KeyboardInterrupt])
def test_broker_down_at_publish(tasks, seen, held, no_broker, monkeypatch, error):
    """A call whose publishing failed leaves no lock, whatever the error."""
    if error is KeyboardInterrupt:

        def interrupted(*args, **kwargs):
            raise KeyboardInterrupt

        monkeypatch.setattr(tasks.app.amqp, "send_task_message", interrupted)
    with pytest.raises(error):
        tasks.long.apply_async((seen.name,), connection=no_broker)
    assert held(f"long:{seen.name}") is None


def test_broker_down_at_publish_keeps_what_another_call_took(tasks, seen, held, no_broker):
    """A call without a record of its own, as in a canvas, leaves the lock of another call."""
    first = tasks.long.apply_async((seen.name,), queue="nobody", countdown=60)
    with pytest.raises(OperationalError):
        tasks.long.apply_async((seen.name,), connection=no_broker, root_id="r")
    assert held(f"long:{seen.name}").owner.extra["task_id"] == first.id


def test_a_signal_that_does_not_kill_frees_nothing(tasks, start_worker, own_queue, seen, free, held):
    """A body that survives the signal of revoke(terminate=True) keeps its lock."""
    # A worker of its own: the pool takes such a child for terminated from then on, whatever it dies of.
    with start_worker("prefork", own_queue):
        result = tasks.stubborn.apply_async((seen.name, 12), queue=own_queue)
        seen.wait("start")
        result.revoke(terminate=True, signal="SIGUSR1")
        seen.wait("soft")
        poll(lambda: seen.count("end") == 1 or held(f"stubborn:{seen.name}") is None, timeout=60, what="an end")
        assert seen.count("end") == 1
        free(f"stubborn:{seen.name}")
