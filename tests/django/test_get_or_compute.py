"""`get_or_compute`: one computation for all callers that miss a value, on real servers."""

import asyncio
import contextlib
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.core.cache import cache as default_cache
from django.core.cache import caches

from django_redlock import locks
from django_redlock.cache import aget_or_compute, get_or_compute
from django_redlock.call_styles import Blocking
from django_redlock.errors import LockDeadlock, LockNotAcquired, LockUnavailable
from tests.support.locks import memory_entry, redis_entry
from tests.support.service import poll


@pytest.fixture(params=["locmem", "redis"])
def cache(request, settings, redis_url):
    pool = {"max_connections": 1000}  # redis-py's default is less than a crowd may need at a moment
    backend = {
        "locmem": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "computed"},
        "redis": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url, "OPTIONS": pool},
    }
    settings.CACHES = {"default": backend[request.param], "unused": {"BACKEND": "missing.Cache"}}  # is never built
    settings.REDLOCK = {"default": redis_entry(redis_url)}
    caches["default"].clear()
    return caches["default"]


class Compute:
    """A computation that counts its calls, and that a test holds up."""

    def __init__(self, value="value"):
        self.value, self.calls = value, 0
        self.started, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def __call__(self):
        self.calls += 1
        self.started.set()
        assert self.may_end.wait(60)
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@contextlib.contextmanager
def computing(cache, **options):
    """A context in which another thread computes a value, up to its end. ``None``: with the thread's own cache."""
    compute = Compute("new")
    compute.may_end.clear()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: get_or_compute(cache or caches["default"], "key", compute, 60, **options))
        assert compute.started.wait(60)
        try:
            yield
        finally:
            compute.may_end.set()
        assert future.result(60) == "new"


def test_a_crowd_computes_once(cache):
    """Two hundred callers without a value get the one that is computed."""
    compute, waits = Compute(), 200
    compute.may_end.clear()
    with ThreadPoolExecutor(waits) as pool:
        futures = [pool.submit(get_or_compute, cache, "key", compute, 60) for _ in range(waits)]
        assert compute.started.wait(60)
        compute.may_end.set()
        assert {future.result(120) for future in futures} == {"value"}
    assert compute.calls == 1


async def test_a_crowd_of_tasks_computes_once(cache):
    calls = []

    async def compute():
        calls.append(1)
        await asyncio.sleep(0.05)
        return "value"

    crowd = await asyncio.gather(*(aget_or_compute(cache, "key", compute, 60) for _ in range(100)))
    assert (set(crowd), len(calls)) == ({"value"}, 1)
    await locks["default"].aclose()


@pytest.fixture
def other_cache(cache, settings):
    """A second cache with the same keys, and a second lock store."""
    locmem = "django.core.cache.backends.locmem.LocMemCache"
    settings.CACHES = settings.CACHES | {"other": {"BACKEND": locmem, "LOCATION": "other"}}
    settings.REDLOCK = settings.REDLOCK | {"other": memory_entry()}
    caches["other"].clear()
    return caches["other"]


def test_the_same_key_in_another_cache(cache, other_cache):
    """A caller does not get another cache's value, and a computation may ask for it."""
    with computing(cache):
        other = get_or_compute(other_cache, "key", Compute("other"), 60, using="other", blocking_timeout=0)
    assert other == other_cache.get("key") == "other"
    cache.delete("key")
    assert get_or_compute(cache, "key", lambda: get_or_compute(other_cache, "key", Compute(), 60), 60) == "other"


@pytest.mark.usefixtures("other_cache")
def test_a_cache_of_another_thread():
    """Callers with a thread's own object of a cache, or Django's proxy, wait for the same computation."""
    with computing(None):
        for cache in (caches["default"], default_cache):
            with pytest.raises(LockNotAcquired):
                get_or_compute(cache, "key", Compute("never"), 60, using="other", blocking_timeout=0)


async def test_a_blocking_call_in_a_coroutine(cache):
    """A blocking call does not wait for a computation that its own event loop has to run."""
    started, may_end = asyncio.Event(), asyncio.Event()

    async def compute():
        started.set()
        await may_end.wait()
        return "value"

    computing = asyncio.create_task(aget_or_compute(cache, "key", compute, 60))
    await started.wait()
    with pytest.raises(RuntimeError, match="in a coroutine use aget_or_compute"):
        get_or_compute(cache, "key", Compute(), 60)
    may_end.set()
    assert await computing == "value"


@pytest.mark.parametrize("error", [RuntimeError("no answer"), LockUnavailable("a lock", "no answer")])
def test_a_failure_reaches_its_caller_only(cache, error):
    """A caller whose computation fails gets the exception, and a waiter computes again."""
    failing = Compute(error)
    failing.may_end.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(get_or_compute, cache, "key", failing, 60)
        assert failing.started.wait(60)
        second = pool.submit(get_or_compute, cache, "key", Compute("second"), 60)
        failing.may_end.set()
        with pytest.raises(type(error), match="no answer"):
            first.result(60)
        assert second.result(60) == "second"


async def test_a_cancelled_computation_frees_the_others(cache):
    begun = asyncio.Event()

    async def forever():
        begun.set()
        await asyncio.sleep(60)

    first = asyncio.create_task(aget_or_compute(cache, "key", forever, 60))
    await begun.wait()
    second = asyncio.create_task(aget_or_compute(cache, "key", lambda: "value", 60))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await asyncio.wait_for(second, 60) == "value"
    await locks["default"].aclose()


def test_stale_while_computed(cache):
    """After the timeout the old value is returned to all but the caller that computes."""
    get_or_compute(cache, "key", Compute("old"), 60, stale=60)
    cache.delete("key")  # as if the timeout were over
    with computing(cache, stale=60):
        assert get_or_compute(cache, "key", Compute("never"), 60, stale=60) == "old"
    assert get_or_compute(cache, "key", Compute("never"), 60, stale=60) == "new"


def test_stale_while_the_store_is_down(cache, settings, own_redis):
    """With the lock store down an old value is returned, and without a value LockUnavailable is raised."""
    get_or_compute(cache, "key", Compute("old"), 60, stale=60)
    cache.delete("key")
    server = own_redis()
    server.kill()
    settings.REDLOCK = {"default": redis_entry(server.url)}
    assert get_or_compute(cache, "key", Compute("never"), 60, stale=60) == "old"
    with pytest.raises(LockUnavailable):
        get_or_compute(cache, "other", Compute("never"), 60)


def test_a_crowd_while_the_store_is_down(cache, settings, proxy, monkeypatch):
    """All callers of a process that wait for one request to the lock store get its LockUnavailable."""
    settings.REDLOCK = {"default": redis_entry(proxy.url, node_timeout=60)}
    result, joined = Blocking.result, []
    monkeypatch.setattr(Blocking, "result", lambda *args: joined.append(args) or result(*args))
    proxy.hold("requests")
    with ThreadPoolExecutor(5) as pool:
        callers = [pool.submit(get_or_compute, cache, "key", Compute(), 60)]
        try:
            poll(lambda: proxy.bytes["requests"], timeout=60, what="the request of the first caller")
            callers += [pool.submit(get_or_compute, cache, "key", Compute("second"), 60) for _ in range(4)]
            poll(lambda: len(joined) == 4, timeout=60, what="the other callers")
            poll(lambda: proxy.cut() or callers[0].done(), timeout=60, what="the error of the first caller")
        finally:
            proxy.restore()
        errors = [each.exception(60) for each in callers]
    assert [type(each) for each in errors] == [LockUnavailable] * 5
    assert len({str(each) for each in errors}) == 1
    assert len({id(each) for each in errors}) == 5  # each thread changes the traceback of its own error


def test_waits_no_longer_than_asked(cache):
    with computing(cache), pytest.raises(LockNotAcquired, match="still computes"):
        get_or_compute(cache, "key", Compute("never"), 60, blocking_timeout=0.05)


@pytest.mark.parametrize("child", ["itself", "task", "thread"])
async def test_a_computation_that_needs_itself(cache, child):
    """A computation, or a task or thread that it waits for, that asks for the same key raises LockDeadlock."""

    async def compute():
        if child == "thread":
            return await asyncio.to_thread(get_or_compute, cache, "key", Compute("never"), 60)
        again = aget_or_compute(cache, "key", Compute("never"), 60)
        return await (asyncio.create_task(again) if child == "task" else again)

    with pytest.raises(LockDeadlock):
        await asyncio.wait_for(aget_or_compute(cache, "key", compute, 60), 60)
    await locks["default"].aclose()


def test_a_blocking_computation_that_needs_itself(cache):
    with pytest.raises(LockDeadlock):
        get_or_compute(cache, "key", lambda: get_or_compute(cache, "key", Compute(), 60), 60)


async def test_a_task_that_outlives_its_computation(cache):
    """A task that a computation has started, and that goes on after it, may ask for the same key."""
    computed, tasks = asyncio.Event(), []

    async def later():
        await computed.wait()
        return await aget_or_compute(cache, "key", Compute("second"), 60)

    async def compute():
        tasks.append(asyncio.create_task(later()))
        return "first"

    assert await aget_or_compute(cache, "key", compute, 60) == "first"
    await cache.adelete("key")
    computed.set()
    assert await tasks[0] == "second"
    await locks["default"].aclose()


def test_killed_process(cache):
    """Callers wait for a killed process until its lease ends."""
    child = os.fork()
    if not child:
        try:
            get_or_compute(cache, "key", lambda: os.kill(os.getpid(), signal.SIGKILL), 60, ttl=0.5)
        finally:
            os._exit(1)  # an error must not go on with the tests in the child
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert get_or_compute(cache, "key", Compute(), 60, blocking_timeout=30) == "value"


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")  # django-redis gives no warning
def test_long_keys(cache):
    """A key may be longer than the name of a lock, if the cache accepts it. Each key has its own value."""
    keys = [f"page:{'x' * 600}{number}" for number in range(2)]
    for key in keys * 2:
        assert get_or_compute(cache, key, Compute(key[-1]), 60) == key[-1]


@pytest.mark.parametrize(
    ("value", "timeout"), [(None, 60), ("value", timedelta(seconds=30)), ("value", 30.5), ("value", None)]
)
def test_computed_once(cache, value, timeout):
    """Within the timeout a value is in the cache, also if it is None."""
    compute = Compute(value)
    assert [get_or_compute(cache, "key", compute, timeout) for _ in range(2)] == [value] * 2
    assert compute.calls == 1


@pytest.mark.parametrize("stale", [0, 60])
def test_a_cache_that_keeps_nothing(cache, settings, stale):
    """With a default timeout of 0, as in tests, each call computes, and nothing is stored."""
    settings.CACHES = {"default": settings.CACHES["default"] | {"TIMEOUT": 0}}
    compute = Compute()
    assert [get_or_compute(caches["default"], "key", compute, stale=stale) for _ in range(2)] == ["value"] * 2
    assert compute.calls == 2
    assert cache.get_many(["key", "key:stale"]) == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout"),
        ({"stale": -1}, "stale"),
        ({"stale": float("nan")}, "stale"),
        ({"timeout": None, "stale": 5}, "never expires"),
        ({"blocking_timeout": -3}, "timeout"),
        ({"tll": 5}, "tll"),
        ({"compute": asyncio.sleep}, "aget_or_compute"),
    ],
)
def test_bad_arguments(cache, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        get_or_compute(cache, "key", **{"compute": Compute(), "timeout": 60} | options)
