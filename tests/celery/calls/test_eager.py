"""``apply()`` and eager mode acquire and release in one call; a direct call acquires no lock."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from celery import chord
from celery.result import allow_join_result

from django_redlock import locks
from django_redlock.celery import is_duplicate, single_instance_task
from django_redlock.errors import LockNotAcquired
from tests.support.locks import entry_of, memory_entry

REDIS, LOCMEM = "redis", "locmem"


@pytest.fixture(params=[REDIS, LOCMEM])
def store(request, settings):
    """A backend for the alias of the tasks: Redis, or memory as in users' tests."""
    if request.param == LOCMEM:
        settings.REDLOCK = {"default": memory_entry("eager")}
    return request.param


@pytest.fixture
def eager(tasks):
    """Celery's own switch for tests."""
    tasks.app.conf.task_always_eager = True
    yield
    tasks.app.conf.task_always_eager = False


@pytest.mark.parametrize("options", [{}, {"mode": "until_expired", "ttl": 3600}, {"mode": "while_executing"}])
def test_short_leases_only(store, settings, tasks, unique, options):
    """With a short max_ttl of the backend, a body without its own ttl gets a lease of max_ttl."""
    settings.REDLOCK = {"default": settings.REDLOCK["default"] | {"OPTIONS": {"max_ttl": 5}}}

    @tasks.app.task(name=unique)
    @single_instance_task(key=unique, **options)
    def work():
        return locks["default"].describe(unique).owner.ttl

    assert work.apply().get() == 5


def test_direct_call_takes_no_lock(tasks, seen, store):
    tasks.nested.apply_async((seen.name,), queue="nobody")
    assert tasks.any_value(17) == "17"
    assert tasks.nested(seen.name, 0) == {"depth": 0, "inner": None}


def test_direct_call_has_a_request_of_its_own(tasks, seen, store):
    """A direct call has its own arguments in its request, as in Celery, also when a body of the same task makes it."""
    inner = {"current": tasks.recursive.name, "args": [seen.name, 0], "id": None, "inner": None}
    assert tasks.recursive(seen.name, 0) == inner
    own = f"id-{seen.name}"
    outer = tasks.recursive.apply((seen.name,), task_id=own).get()
    inner["id"] = outer["inner"]["id"]
    assert inner["id"] in (own, None)  # None in Celery 5.4
    assert outer == {"current": tasks.recursive.name, "args": [seen.name], "id": own, "inner": inner}


def test_apply_locks_and_releases(tasks, seen, store):
    results = [tasks.executed.apply((seen.name,)) for _ in range(3)]
    assert [result.get() for result in results] == [seen.name] * 3
    assert [result.duplicate for result in results] == [False] * 3


@pytest.mark.parametrize("kind", ["nested", "running_nested"])
def test_nested_call_of_itself_is_a_duplicate(tasks, seen, store, kind):
    outer = getattr(tasks, kind).apply((seen.name,)).get(disable_sync_subtasks=False)
    assert is_duplicate(outer["inner"])
    assert seen.count("start") == 1
    assert not is_duplicate(getattr(tasks, kind).apply((seen.name, 0)).get())


def test_eager_duplicate_of_a_queued_one(tasks, seen):
    queued = tasks.executed.apply_async((seen.name,), queue="nobody")
    result = tasks.executed.apply((seen.name,))
    assert (result.duplicate, result.id) == (True, queued.id)
    assert is_duplicate(result.get())
    tasks.raising.apply_async((seen.name,), queue="nobody")
    with pytest.raises(LockNotAcquired):
        tasks.raising.apply((seen.name,))


def test_a_callable_decides_to_wait(tasks, unique, store):
    began, ended = Event(), Event()

    def let_go(conflict):
        ended.set()
        return "wait"

    @tasks.app.task(name=unique)
    @single_instance_task(key=unique, on_conflict=let_go, conflict_timeout=60)
    def work():
        began.set()
        return ended.wait(60)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(lambda: work.apply().get())
        assert began.wait(60)
        try:
            assert work.apply().get()
        finally:
            ended.set()
        assert first.result()


def test_eager_retry(tasks, seen, store, eager):
    """An eager retry, which Celery runs inside the first call, is the owner of the lock."""
    assert tasks.retries.delay(seen.name, countdown=0).get() == seen.name
    assert seen.count("start") == 3
    assert tasks.retries.delay(seen.name, failures=0).get() == seen.name


def test_eager_exception_frees(tasks, seen, store, eager):
    for _ in range(2):
        with pytest.raises(ValueError, match=seen.name):
            tasks.ends.delay(seen.name, "exception").get()


@pytest.mark.parametrize("mode", ["until_executing", "until_expired", "until_and_while_executing"])
def test_eager_in_other_modes(tasks, seen, store, mode):
    """In eager mode until_expired keeps its lock for the period, and the other modes release it."""

    @tasks.app.task(name=f"{mode}-{seen.name}")
    @single_instance_task(mode=mode)
    def task():
        return 1

    assert task.apply().get() == 1
    assert is_duplicate(task.apply().get()) == (mode == "until_expired")


def test_no_duplicates_with_the_dummy_backend(tasks, seen, settings):
    settings.REDLOCK = {"default": entry_of("dummy.DummyBackend")}
    results = [tasks.executed.apply_async((seen.name,), queue="nobody") for _ in range(2)]
    assert not any(result.duplicate for result in results)
    outer = tasks.nested.apply((seen.name,)).get(disable_sync_subtasks=False)
    assert outer["inner"] == {"depth": 0, "inner": None}


def test_a_canvas_of_eager_tasks(tasks, seen, store, eager):
    header = [tasks.executed.s(seen.name) for _ in range(2)]
    assert chord(header)(tasks.collect.s()).get() == [seen.name] * 2
    assert not locks["default"].held(f"executed:{seen.name}")


def test_eager_replace(tasks, store, eager, unique):
    """An eager replacement with the same key is no duplicate of the replaced body, but a nested call of it is one."""
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
            raise self.replace(part.si(1))

    body.delay()
    assert (ran, calls) == ([1], [True])
    assert not locks["default"].held(unique)
