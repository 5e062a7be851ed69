"""When the lock store does not serve, no task runs unprotected, unless the task allows it."""

import pytest
from celery import chain

from django_redlock import locks
from django_redlock.celery.messages import HEADER, Message
from django_redlock.core.flow.drivers import drive
from django_redlock.core.flow.requests import EvalScript, Fault
from django_redlock.errors import LockUnavailable
from django_redlock.single_instance.call import new_delivery_id
from django_redlock.single_instance.records import BODY, cancel, submit
from testproject.redis_server import RedisServer
from tests.celery.conftest import logged, run_here
from tests.support.locks import redis_entry
from tests.support.service import poll, revive

QUEUE = "store-down"


@pytest.fixture
def store(own_redis, settings) -> RedisServer:
    """A lock store apart from the broker."""
    server = own_redis()
    use(settings, server, 5)
    return server


def use(settings, server, node_timeout):
    settings.REDLOCK = {"default": redis_entry(server.url, node_timeout=node_timeout)}


@pytest.fixture(scope="module")
def served(start_worker):
    """A lock store, and the worker of `QUEUE`, which uses it."""
    with RedisServer() as server, start_worker("prefork", QUEUE, TESTPROJECT_REDIS=server.url) as worker:
        yield server, worker


@pytest.fixture
def served_store(served, settings) -> RedisServer:
    """The store of that worker."""
    revive(served[0])
    use(settings, served[0], 5)
    return served[0]


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_submit_fails_closed(tasks, own_queue, seen, store, settings, how):
    """If the store is down or hangs, apply_async() raises LockUnavailable and sends nothing."""
    use(settings, store, 1)
    getattr(store, how)()
    with pytest.raises(LockUnavailable, match=f"executed:{seen.name}"):
        tasks.executed.apply_async((seen.name,), queue=own_queue)
    with tasks.app.connection_for_read() as connection:
        assert connection.default_channel.client.llen(own_queue) == 0


def test_submit_runs_unprotected_on_request(tasks, own_queue, seen, store):
    store.kill()
    result = tasks.open.apply_async((seen.name,), queue=own_queue)
    assert not result.duplicate
    with tasks.app.connection_for_read() as connection:
        assert connection.default_channel.client.llen(own_queue) == 1


def test_start_fails_closed(tasks, seen, served_store):
    served_store.kill()
    with pytest.raises(LockUnavailable):
        tasks.running.apply_async((seen.name,), queue=QUEUE).get(timeout=60)
    assert seen.count("start") == 0


@pytest.mark.parametrize("kind", ["patient", "patient_running"])
def test_autoretry_until_the_store_is_back(tasks, start_worker, own_queue, seen, store, free, kind):
    result = getattr(tasks, kind).apply_async((seen.name,), queue=own_queue)
    store.kill()
    with start_worker("prefork", own_queue, TESTPROJECT_REDIS=store.url):
        poll(lambda: result.state == "RETRY", timeout=30, what="a retry")
        assert seen.count("start") == 0
        store.start()
        assert result.get(timeout=60) == seen.name
        free(f"{kind}:{seen.name}")


def test_retry_while_the_store_is_down(tasks, seen, served_store, go):
    call = {"failures": 1, "countdown": 6, "seconds": tasks.UNTIL_GO}
    result = tasks.retries.apply_async((seen.name,), call, queue=QUEUE)
    seen.wait("start")
    served_store.kill()
    go()
    seen.wait("end")
    served_store.start()
    assert result.get(timeout=60) == seen.name
    assert seen.count("start") == 2


def test_next_step_of_a_chain_while_the_store_is_down(tasks, seen, served_store, go):
    steps = chain(
        tasks.executed_plain.si(seen.name, tasks.UNTIL_GO).set(queue=QUEUE),
        tasks.executed.si(seen.name).set(queue=QUEUE),
    )
    result = steps.apply_async()
    seen.wait("start")
    served_store.kill()
    go()
    with pytest.raises(LockUnavailable):
        result.get(timeout=60)
    assert result.parent.get(timeout=60) == seen.name


def test_a_failed_start_frees_the_record_when_the_store_is_back(tasks, start_worker, own_queue, seen, store, free):
    result = tasks.executed.apply_async((seen.name,), queue=own_queue)
    store.pause()
    with start_worker("prefork", own_queue, TESTPROJECT_REDIS=store.url, TESTPROJECT_NODE_TIMEOUT="1"):
        with pytest.raises(LockUnavailable):
            result.get(timeout=60)
        store.resume()
        free(f"executed:{seen.name}")


@pytest.mark.parametrize("kind", ["executed", "and_while"])
def test_a_start_that_the_network_delays_is_taken_back(tasks, seen, kind):
    """A start that arrives after its call has failed and was cancelled leaves no record."""
    store, task = locks["default"], getattr(tasks, kind)
    message = Message(f"{kind}:{seen.name}", new_delivery_id(), "a")
    call = task.redlock.call_of(task, message)
    drive(submit(call, False, False, store.algorithm), store.perform)
    start = BODY.acquire_request(task.redlock.body_lock(call).new_claim())
    assert drive(cancel(call), store.perform)
    assert store.perform(start) > 1
    assert store.perform(start.compensation()) == 1  # it follows the start on the same connection
    assert store.held(message.name) == []


@pytest.mark.parametrize(("kind", "retries"), [("open", 0), ("patient", 60)])
def test_a_start_that_the_network_delays_beyond_the_end_is_refused(tasks, seen, monkeypatch, kind, retries):
    """A start that arrives after its call has ended, unprotected or after its last retry, leaves no record."""
    store, task = locks["default"], getattr(tasks, kind)
    message = Message(f"{kind}:{seen.name}", new_delivery_id(), seen.name)
    drive(submit(task.redlock.call_of(task, message), False, False, store.algorithm), store.perform)
    starts, perform = [], store.perform

    def without_starts(request):
        if isinstance(request, EvalScript) and request.script.name.endswith("task_start"):
            starts.append(request)
            return Fault(TimeoutError("no answer"))
        return perform(request)

    monkeypatch.setattr(store, "perform", without_starts)
    run_here(task, seen.name, retries=retries, **{HEADER: list(message)})
    assert seen.count("start") == (kind == "open")
    (start,) = starts
    perform(start)
    perform(start.compensation())  # it follows the start on the same connection
    assert store.held(message.name) == []


def test_start_runs_unprotected_on_request(tasks, seen, served_store):
    served_store.kill()
    assert tasks.open_running.apply_async((seen.name,), queue=QUEUE).get(timeout=60) == seen.name


def test_a_release_that_fails_changes_no_outcome(tasks, seen, started, served_store, go):
    result = started(tasks.running, QUEUE)
    served_store.kill()
    go()
    assert result.get(timeout=60) == seen.name


def test_force_release_of_a_running_task_is_logged(tasks, seen, started, served, served_store, go):
    """After a forced release the running body goes on, a warning is logged, and the lock of the next call stays."""
    first = started(tasks.executed, QUEUE)
    assert locks["default"].force_release(f"executed:{seen.name}")
    second = tasks.executed.apply_async((seen.name,), queue="nobody")
    assert not second.duplicate
    logged(served[1], f"executed:{seen.name}' was lost")
    go()
    assert first.get(timeout=60) == seen.name
    assert locks["default"].describe(f"executed:{seen.name}").owner.extra["task_id"] == second.id
