"""``apply()`` and eager mode acquire and release in one call; a direct call acquires no lock."""

from __future__ import annotations

import pytest
from celery import Celery, chain, chord, group
from celery.result import allow_join_result

from django_redlock import locks
from django_redlock.celery import is_duplicate, single_instance_task
from django_redlock.celery.eager import is_always_eager
from django_redlock.errors import LockNotAcquired

REDIS, LOCMEM = "redis", "locmem"


@pytest.fixture(params=[REDIS, LOCMEM])
def store(request, settings):
    """The tasks' alias is on a Redis, or in memory as in users' tests."""
    if request.param == LOCMEM:
        settings.REDLOCK = {"default": {"BACKEND": "django_redlock.backends.locmem.LocMemBackend", "LOCATION": "eager"}}
    return request.param


@pytest.fixture
def eager(tasks):
    """Celery's own switch for tests."""
    tasks.app.conf.task_always_eager = True
    yield
    tasks.app.conf.task_always_eager = False


@pytest.mark.parametrize("options", [{}, {"mode": "until_expired", "ttl": 3600}, {"mode": "while_executing"}])
def test_short_leases_only(store, settings, tasks, unique, options):
    """Where the backend's `max_ttl` is short, so is the lease of a body that doesn't say its own."""
    settings.REDLOCK = {"default": {**settings.REDLOCK["default"], "OPTIONS": {"max_ttl": 5}}}

    @tasks.app.task(name=unique)
    @single_instance_task(key=unique, **options)
    def work():
        return locks["default"].describe(unique).owner.ttl

    assert work.apply().get() == 5


def plainly(app):
    app.conf.task_always_eager = True


def by_its_old_name(app):
    app.config_from_object({"CELERY_ALWAYS_EAGER": True})


def by_a_namespace(app):
    app.config_from_object(type("Settings", (), {"CELERY_TASK_ALWAYS_EAGER": True}), namespace="CELERY")


def by_a_default(app):
    app.add_defaults({"task_always_eager": True})


@pytest.mark.parametrize(
    ("declare", "read"),
    [
        (plainly, False),
        (plainly, True),
        (by_a_default, False),
        (by_a_default, True),
        (by_its_old_name, False),
        (by_a_namespace, False),
    ],
)
def test_whoever_switches_it_on(declare, read):
    """Eager mode is seen however it was set, before Celery has ``read`` its settings, and always after."""
    app = Celery("settings", set_as_current=False)
    if read:
        assert app.conf.task_serializer
        assert not is_always_eager(app.conf)
    declare(app)
    assert is_always_eager(app.conf)
    assert app.conf.task_always_eager
    assert is_always_eager(app.conf)


def test_it_is_switched_in_the_settings_object():
    """An object that settings are read from is looked at each time, as Celery does."""
    settings = type("Settings", (), {"CELERY_TASK_SERIALIZER": "json"})
    app = Celery("settings", set_as_current=False)
    app.config_from_object(settings, namespace="CELERY")
    told = []
    for settings.CELERY_TASK_ALWAYS_EAGER in (False, True, False):
        told.append((is_always_eager(app.conf), app.conf.task_always_eager))
    assert told == [(False, False), (True, True), (False, False)]


def test_direct_call_takes_no_lock(tasks, seen, store):
    """A task that is called as a function is just that function."""
    tasks.nested.apply_async((seen.name,), queue="nobody")
    assert tasks.any_value(17) == "17"
    assert tasks.nested(seen.name, 0) == {"depth": 0, "inner": None}


def test_apply_locks_and_releases(tasks, seen, store):
    """One after another they all run."""
    results = [tasks.executed.apply((seen.name,)) for _ in range(3)]
    assert [result.get() for result in results] == [seen.name] * 3
    assert [result.duplicate for result in results] == [False] * 3


@pytest.mark.parametrize("kind", ["nested", "running_nested"])
def test_nested_call_of_itself_is_a_duplicate(tasks, seen, store, kind):
    """The inner call returns at once with the marker; no deadlock."""
    outer = getattr(tasks, kind).apply((seen.name,)).get(disable_sync_subtasks=False)
    assert is_duplicate(outer["inner"])
    assert seen.count("start") == 1
    assert not is_duplicate(getattr(tasks, kind).apply((seen.name, 0)).get())


def test_control_a_plain_nested_call_runs(tasks, seen):
    """Without the decorator the inner one runs inside the outer one."""
    tasks.nested_plain.apply((seen.name,))
    assert seen.count("start") == 2


def test_eager_delay(tasks, seen, store, eager):
    """delay() in eager mode takes the lock, runs and frees it."""
    assert tasks.executed.delay(seen.name).get() == seen.name
    assert tasks.executed.delay(seen.name).get() == seen.name
    assert seen.count("start") == 2


def test_eager_duplicate_of_a_queued_one(tasks, seen, monkeypatch):
    """What is queued for a worker counts against an eager call too."""
    queued = tasks.executed.apply_async((seen.name,), queue="nobody")
    result = tasks.executed.apply((seen.name,))
    assert (result.duplicate, result.id) == (True, queued.id)
    assert is_duplicate(result.get())
    tasks.raising.apply_async((seen.name,), queue="nobody")
    with pytest.raises(LockNotAcquired):
        tasks.raising.apply((seen.name,))


def test_eager_retry(tasks, seen, store, eager):
    """Celery runs an eager retry inside the first call: it is the owner."""
    assert tasks.retries.delay(seen.name, countdown=0).get() == seen.name
    assert seen.count("start") == 3
    assert tasks.retries.delay(seen.name, failures=0).get() == seen.name


def test_eager_exception_frees(tasks, seen, store, eager):
    """The end of an eager task is the end of its lock, however it ends."""
    for _ in range(2):
        with pytest.raises(ValueError, match=seen.name):
            tasks.ends.delay(seen.name, "exception").get()


@pytest.mark.parametrize("mode", ["until_executing", "until_expired", "until_and_while_executing"])
def test_eager_in_other_modes(tasks, seen, store, mode):
    """until_expired keeps its lock for the period; the others are free when the call returns."""

    @tasks.app.task(name=f"{mode}-{seen.name}")
    @single_instance_task(mode=mode)
    def task():
        return 1

    assert task.apply().get() == 1
    assert is_duplicate(task.apply().get()) == (mode == "until_expired")


def test_dummy_backend_lets_everything_through(tasks, seen, settings):
    """With the dummy backend nothing is a duplicate, for tests of other things."""
    settings.REDLOCK = {"default": {"BACKEND": "django_redlock.backends.dummy.DummyBackend"}}
    results = [tasks.executed.apply_async((seen.name,), queue="nobody") for _ in range(2)]
    assert not any(result.duplicate for result in results)
    outer = tasks.nested.apply((seen.name,)).get(disable_sync_subtasks=False)
    assert outer["inner"] == {"depth": 0, "inner": None}


def test_a_canvas_of_eager_tasks(tasks, seen, store, eager):
    """Chord and group are complete in eager mode too."""
    header = [tasks.executed.s(seen.name) for _ in range(2)]
    assert chord(header)(tasks.collect.s()).get() == [seen.name] * 2
    assert not locks["default"].held(f"executed:{seen.name}")


TAKES_THE_PLACE = {
    "task": ([1], lambda part: part.si(1)),
    "group": ([1, 2], lambda part: group(part.si(1), part.si(2))),
    "chord": ([1, 2, 3], lambda part: chord([part.si(1), part.si(2)], part.si(3))),
    "chain": ([1, 2], lambda part: chain(part.si(1), part.si(2))),
}


@pytest.mark.parametrize(("numbers", "made"), TAKES_THE_PLACE.values(), ids=TAKES_THE_PLACE)
def test_eager_replace(tasks, store, eager, unique, numbers, made):
    """What takes the place of a body is no duplicate of it, also with the same key; what that calls itself is one."""
    ran, calls = [], []

    @tasks.app.task(name=f"part-{unique}")
    @single_instance_task(key=unique)
    def part(number):
        ran.append(number)
        calls.append(part.apply((number,)).duplicate)

    @tasks.app.task(name=unique, bind=True)
    @single_instance_task(key=unique)
    def body(self):
        with allow_join_result():  # Celery itself calls get()
            raise self.replace(made(part))

    body.delay()
    assert ran == numbers
    assert calls == [True] * len(numbers)
    assert not locks["default"].held(unique)
