"""A protected task keeps its name, signature, bases and hooks, and all ways to create and call it."""

import inspect
import logging
import threading

import pytest
from celery import Celery, Task, _state, shared_task
from celery.app.log import Logging
from celery.contrib.testing.worker import start_worker
from celery.signals import setup_logging
from django.db import transaction

from django_redlock import locks
from django_redlock.celery import is_duplicate, single_instance_task
from django_redlock.celery.task import SingleInstanceMixin
from tests.support.locks import memory_entry
from tests.support.service import poll


def test_name_signature_and_argument_check_are_untouched(tasks):

    def function(self, order_id: int, force: bool = False) -> str:
        """Doc."""

    assert single_instance_task(function) is function
    task = tasks.app.task(bind=True, name="untouched")(function)
    assert (task.name, task.__doc__) == ("untouched", "Doc.")
    assert inspect.signature(function).parameters.keys() == {"self", "order_id", "force"}
    for args in ((), (1, 2, 3)):
        with pytest.raises(TypeError, match="function\\(\\)"):
            task.apply_async(args, queue="nobody")


WAYS = {
    "plain": lambda app, function: app.task(function),
    "shared": lambda _app, function: shared_task(function),
    "after finalize": lambda app, function: app.finalize() or app.task(function),
    "not lazy": lambda app, function: app.task(lazy=False)(function),
    "class": lambda app, function: app.register_task(
        type("ByClass", (Task,), {"run": staticmethod(function), "name": function.__name__})()
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_make_a_task_protects_it(tasks, seen, way):

    def function(a): ...

    function.__name__ = function.__qualname__ = f"made_{way}_{seen.name}".replace("-", "_").replace(" ", "_")
    task = WAYS[way](tasks.app, single_instance_task(function))
    results = [task.apply_async((1,), queue="nobody") for _ in range(2)]
    assert [result.duplicate for result in results] == [False, True]
    assert isinstance(task, SingleInstanceMixin)


def test_one_shared_task_in_two_apps(tasks, seen):
    other = Celery("other", set_as_current=False, broker=tasks.BROKER)

    @shared_task(name=f"shared-{seen.name}")
    @single_instance_task
    def function(): ...

    here, there = tasks.app.tasks[function.name], other.tasks[function.name]
    assert type(here) is not type(there)
    assert not here.apply_async(queue="nobody").duplicate
    assert there.apply_async(queue="nobody").duplicate


def test_hooks_and_call_of_a_base_are_called(tasks, queue, seen):
    tasks.hooked.apply_async((seen.name,), queue=queue).get(timeout=60)
    seen.wait("after_return")
    order = [event["event"] for event in seen.events()]
    assert order == ["before_start", "call", "start", "end", "on_success", "after_return"]


@pytest.mark.parametrize("kind", ["by_class", "by_heir"])
def test_a_class_with_a_call_of_its_own(tasks, queue, seen, started, held, free, go, kind):
    name = f"by_class:{seen.name}"
    result = started(getattr(tasks, kind), queue)
    assert held(name).owner.extra["state"] == "running"
    assert tasks.by_class.apply_async((seen.name,), queue=queue).duplicate
    go()
    assert result.get(timeout=60) == seen.name
    free(name)
    assert seen.count("call") == 1


def test_classes_that_inherit_from_each_other(tasks, seen, held):

    class Parent(Task):
        name = f"parent-{seen.name}"

        @single_instance_task
        def run(self, a): ...

    class Heir(Parent):
        name = f"heir-{seen.name}"

        @single_instance_task(unique_on=["b"])
        def run(self, a, b): ...

    class Heirs(Heir):
        name = f"heirs-{seen.name}"

    calls = {Heirs: (1, 2), Heir: (1, 2), Parent: (1,)}
    for kind, args in calls.items():
        task = tasks.app.register_task(kind())
        assert [task.apply_async(args, queue="nobody").duplicate for _ in range(2)] == [False, True]
        assert held(f"{kind.name}({'a=1' if kind is Parent else 'b=2'})")


@pytest.mark.parametrize("kind", ["undecorated", "undecorated_heir"])
def test_the_lock_of_a_class_is_not_inherited_by_another_body(tasks, queue, seen, held, go, kind):
    """A task with a protected base and a body that is not decorated is a task without a lock."""
    task = getattr(tasks, kind)
    calls = [(seen.name, tasks.UNTIL_GO), (seen.name, tasks.UNTIL_GO), (seen.name, tasks.UNTIL_GO, "more")]
    results = [task.apply_async(call, queue=queue) for call in calls]
    seen.wait("start", 3)
    assert {event["id"] for event in seen.events("start")} == {result.id for result in results}
    assert not any(hasattr(result, "duplicate") for result in results)
    assert not locks["default"].held(f"*{seen.name}*")
    go()
    assert [result.get(timeout=60) for result in results] == [seen.name] * 3
    assert task.apply((seen.name, 0, "more")).get() == task(seen.name) == seen.name


def test_arguments_that_do_not_fit_a_class(tasks, seen):
    """Arguments that don't fit the ``run`` of a class raise a ``TypeError``, as those of a function do."""
    for task in (tasks.by_class, tasks.protected_base, tasks.any_value):
        with pytest.raises(TypeError, match="argument"):
            task.apply_async((seen.name, 1, 2), queue="nobody")


class Tenants(Task):
    """A base class that adds an argument to each call, for example a tenant."""

    tenant = "a"

    def apply_async(self, args=None, kwargs=None, **options):
        return super().apply_async(args, {"tenant": self.tenant, **(kwargs or {})}, **options)


BASES = [Tenants, type("Derived", (Tenants,), {}), type("Mixed", (type("Mixin", (), {}), Tenants, Task), {})]


@pytest.mark.parametrize("base", BASES)
def test_arguments_that_a_base_class_adds(tasks, seen, held, base):
    """Arguments that the apply_async() of a base class adds are part of the key."""

    @tasks.app.task(name=f"tenants-{seen.name}", base=base)
    @single_instance_task
    def task(a, tenant): ...

    first = task.apply_async((1,), queue="nobody")
    assert [first.duplicate, task.apply_async((1,), queue="nobody").duplicate] == [False, True]
    assert held(f'{task.name}(a=1,tenant="a")')
    task.tenant = "b"
    assert not task.apply_async((1,), queue="nobody").duplicate


def test_sent_by_name(tasks, queue, seen, free):
    """A task that is sent by send_task() is protected in the worker, with the same key."""
    sent = [tasks.app.send_task(tasks.executed.name, (seen.name, 0.5), queue=queue) for _ in range(3)]
    results = [result.get(timeout=60) for result in sent]
    assert seen.overlap() == []
    assert seen.count("start") == sum(not is_duplicate(result) for result in results) >= 1
    free(f"executed:{seen.name}")


def test_an_id_of_ones_own(tasks, queue, seen, free, go):
    """A second submit with the same custom id is a duplicate until the first has ended."""
    call = {"task_id": f"id-{seen.name}"}
    first, second = (tasks.long.apply_async((seen.name, tasks.UNTIL_GO), queue=queue, **call) for _ in range(2))
    assert [first.duplicate, second.duplicate] == [False, True]
    go()
    seen.wait("end")
    free(f"long:{seen.name}")
    assert not tasks.long.apply_async((seen.name,), queue=queue, **call).duplicate
    seen.wait("end", 2)
    free(f"long:{seen.name}")


@pytest.fixture
def nothing_left(monkeypatch):
    """Keep Celery's test worker from changing the logging and the current app of this process."""

    def leave_it(**kwargs): ...

    setup_logging.connect(leave_it)
    monkeypatch.setattr(Logging, "_setup", Logging._setup)
    monkeypatch.setattr(_state, "default_app", _state.default_app)
    monkeypatch.setattr(_state._tls, "current_app", _state._tls.current_app)
    for name in ("CELERY_LOG_LEVEL", "CELERY_LOG_FILE"):
        monkeypatch.setenv(name, "")
    yield
    logging.captureWarnings(False)
    setup_logging.disconnect(leave_it)


def test_celerys_worker_for_tests(tasks, seen, settings, nothing_left):
    """Celery's in-process test worker with locks in memory works as in users' tests."""
    settings.REDLOCK = {"default": memory_entry(seen.name)}
    app = Celery("in-process", broker="memory://", backend="cache+memory://", set_as_current=False)
    runs, goes_on = [], threading.Event()

    @app.task
    @single_instance_task(key="one:{number}")
    def one(number):
        goes_on.wait(30)
        runs.append(number)

    with start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=60):
        first, second = one.delay(1), one.delay(1)
        assert [first.duplicate, second.duplicate] == [False, True]
        goes_on.set()
        second.get(timeout=60)
        assert not one.delay(1).duplicate
        poll(lambda: runs == [1, 1], timeout=60, what="the second run")


def test_message_protocol_1(tasks, queue, seen, free, go):
    """With message protocol 1 duplicates, retries and revoked tasks are handled as usual."""
    amqp = tasks.app.amqp
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amqp, "create_task_message", amqp.as_task_v1)
        first = tasks.retries.apply_async((seen.name,), {"seconds": tasks.UNTIL_GO}, queue=queue)
        assert tasks.retries.apply_async((seen.name,), queue=queue).duplicate
        revoked = tasks.long.apply_async((seen.name,), queue=queue, countdown=0.5)
        revoked.revoke()
        tasks.unready.apply_async((seen.name,), queue=queue)
    go()
    assert first.get(timeout=60) == seen.name
    for name in ("retries", "long", "unready"):
        free(f"{name}:{seen.name}")


def test_worker_with_prefetched_backlog(tasks, queue, seen, free):
    """A message whose record was released by force runs, and the lock is free afterwards."""
    from django_redlock import locks

    result = tasks.executed.apply_async((seen.name,), queue=queue, countdown=3)
    assert locks["default"].force_release(f"executed:{seen.name}")
    assert result.get(timeout=60) == seen.name
    free(f"executed:{seen.name}")


@pytest.mark.django_db(transaction=True)
def test_delay_on_commit(tasks, seen, held):
    """delay_on_commit() acquires the lock at the commit, and a rollback leaves none."""
    task, name = tasks.django_task, f"django_task:{seen.name}"
    with transaction.atomic():
        task.delay_on_commit(seen.name)
        transaction.set_rollback(True)
    assert held(name) is None
    with transaction.atomic():
        task.delay_on_commit(seen.name)
        task.apply_async_on_commit((seen.name,), queue="nobody")
        assert held(name) is None
    assert held(name).owner.extra["state"] == "queued"


@pytest.mark.parametrize("to", ["executed", "running"])
def test_copied_headers(tasks, queue, seen, free, to):
    sent = tasks.forwards.apply_async((seen.name, to), queue=queue).get(timeout=60)
    [start] = seen.wait("start")
    assert start["id"] == sent
    assert tasks.app.AsyncResult(sent).get(timeout=60) == seen.name
    free(f"forwards:{seen.name}")
    free(f"{to}:{seen.name}")


@pytest.mark.parametrize("header", [5, "abc", [], ["a"], {"a": 1}, ["a", "b", "c", "d"], [None, None, None, None]])
def test_a_foreign_header_with_our_name(tasks, queue, seen, header):
    name = tasks.executed.name
    result = tasks.app.send_task(name, (seen.name,), headers={"redlock": header}, queue=queue)
    assert result.get(timeout=60) == seen.name
