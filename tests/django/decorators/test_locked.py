"""`@locked`: the lock's name, protected functions, and refused functions."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial, wraps
from types import SimpleNamespace

import pytest

from django_redlock import lock, locks
from django_redlock.decorators import locked, locked_view
from django_redlock.errors import LockLost, LockNotAcquired, LockUnavailable

pytestmark = pytest.mark.usefixtures("stores")


def held(using="default"):
    return [each.name for each in locks[using].held()]


@pytest.mark.parametrize(
    ("template", "call", "name"),
    [
        ("report", lambda f: f(1), "report"),
        ("report:{a}:{b}", lambda f: f(1), "report:1:two"),
        ("report:{a}:{b}", lambda f: f(b="B", a=7), "report:7:B"),
        ("report:{a.pk}", lambda f: f(SimpleNamespace(pk=5)), "report:5"),
        ("report:{a[key]}", lambda f: f({"key": "v"}), "report:v"),
        ("report:{a:0{c}}", lambda f: f(5, c=3), "report:005"),
        ("report:{rest[1]}", lambda f: f(1, "b", "x", "y"), "report:y"),
        ("report:{other}", lambda f: f(1, other=9), "report:9"),
        ("report:{{{a}}}", lambda f: f(1), "report:{1}"),
    ],
)
def test_name_from_arguments(template, call, name):
    """Fields in the name are arguments with defaults, and what str.format reaches from them."""

    @locked(template)
    def report(a, b="two", *rest, c=1, **others):
        return held()

    assert call(report) == [name]
    assert held() == []


def test_methods(stores):
    """On methods `self` or `cls` is an argument for the name, and class and static methods work."""

    class Shop:
        pk = 3

        @locked("shop:{self.pk}:{item}")
        def sell(self, item):
            return held()

        @classmethod
        @locked("shop:{cls.pk}:{item}")
        def order(cls, item):
            return held() if item else []

        @staticmethod
        @locked("static:{item}")
        def count(item):
            return held() if item else []

    assert (Shop().sell("a"), Shop.order("b"), Shop.count("c")) == (["shop:3:a"], ["shop:3:b"], ["static:c"])


def test_using_and_options():
    """`using` chooses the backend, and the other options are the lock's."""

    @locked("report", using="memory", ttl=70, owner="nightly")
    def report():
        [entry] = locks["memory"].held()
        return entry.owner.label, 60 < entry.remaining <= 70, held("default")

    assert report() == ("nightly", True, [])


def test_one_at_a_time():
    """While one call runs, another with the same name is refused, and one with another name is not."""

    @locked("report:{number}", blocking=False)
    def report(number, body=int):
        return body()

    def meanwhile():
        with pytest.raises(LockNotAcquired) as refused:
            report(1)
        assert refused.value.name == "report:1"
        return report(2)

    with ThreadPoolExecutor(1) as other_thread:
        assert report(1, lambda: other_thread.submit(meanwhile).result(20)) == report(1) == 0


async def test_coroutines():
    """A coroutine function stays one, holds the lock while suspended, and releases it when cancelled."""
    inside = asyncio.Event()

    @locked("report:{number}", blocking_timeout=0)
    async def report(number):
        inside.set()
        await asyncio.sleep(60)

    assert inspect.iscoroutinefunction(report)
    task = asyncio.create_task(report(1))
    await asyncio.wait_for(inside.wait(), 20)
    with pytest.raises(LockNotAcquired):
        await report(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await lock("report:1").alocked()


def test_errors_of_the_body_and_of_the_lock(settings):
    """An error of the function is raised and the lock is free. A loss and a store that is down raise, too."""

    @locked("report")
    def report(action):
        action()

    with pytest.raises(ZeroDivisionError):
        report(lambda: 1 / 0)
    assert held() == []
    with pytest.raises(LockLost):
        report(lambda: locks["default"].force_release("report"))
    settings.REDLOCK = {"default": {**settings.REDLOCK["default"], "LOCATION": "redis://127.0.0.1:1/0"}}
    with pytest.raises(LockUnavailable):
        report(print)


def test_looks_like_the_function():
    """The wrapper has the function's name, docstring, signature and attributes."""

    def report(a: int, *, b: str = "x") -> str:
        """Reports."""

    report.attribute = 1
    wrapped = locked("report:{a}")(report)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.attribute) == ("report", "Reports.", 1)
    assert inspect.signature(wrapped) == inspect.signature(report)
    assert inspect.getfullargspec(wrapped).args == ["a"]


def generator():
    yield


async def agenerator():
    yield


async def coroutine(_self=None):
    pass


def wrapped_plainly(function):
    return wraps(function)(lambda: [function()])


AsyncReport, Rows = type("AsyncReport", (), {"__call__": coroutine}), type("Rows", (), {"__call__": generator})


@pytest.mark.parametrize(
    ("decorated", "message"),
    [
        (wrapped_plainly(coroutine), "is async, but the decorated object is not"),
        (wrapped_plainly(partial(coroutine)), "is async, but the decorated object is not"),
        (AsyncReport(), "is async, but the decorated object is not"),
        (Rows(), "generator function"),
        (generator, "generator function"),
        (agenerator, "generator function"),
        (contextmanager(generator), "generator function"),
        (partial(generator), "generator function"),
        (type("Shop", (), {}), "not a class"),
        (classmethod(print), "below @classmethod"),
        (staticmethod(print), "below @staticmethod"),
        (property(print), "below @property"),
        (cached_property(print), "below @cached_property"),
        (17, "functions and methods, not 17"),
        (None, "functions and methods, not None"),
    ],
)
def test_refuses_what_it_cannot_protect(decorated, message):
    """Functions whose work goes on after the call, and objects that are no functions, are refused."""
    with pytest.raises(TypeError, match=message):
        locked("report")(decorated)


@pytest.mark.parametrize(
    ("template", "error", "message"),
    [
        ("report:{c}", TypeError, r"no argument 'c' \(arguments: a, b\)"),
        ("report:{c.pk}:{d}", TypeError, "no argument 'c', 'd'"),
        ("report:{a:{c}}", TypeError, "no argument 'c'"),
        ("report:{}", ValueError, "not the name of an argument"),
        ("report:{0}", ValueError, "not the name of an argument"),
        ("report:{a", ValueError, "write a literal brace twice"),
    ],
)
def test_bad_template(template, error, message):
    """A wrong template raises an error at decoration."""
    with pytest.raises(error, match=message):
        locked(template)(lambda a, b: (a, b))


def test_wrong_call():
    """A call with wrong arguments raises the function's own error, and one without what the name needs another."""
    report = locked("report:{a}")(lambda a, b: (a, b))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        report(1)
    with pytest.raises(TypeError, match="too many positional arguments"):
        report(1, 2, 3)
    with pytest.raises(TypeError, match=r"needs 'number', which this call does not have"):
        locked("report:{number}")(lambda **_: None)(other=1)


@pytest.mark.parametrize("decorator", [locked, locked_view])
def test_unknown_option(decorator):
    """An unknown option raises an error at decoration, with the list of options, and so does a missing name."""
    with pytest.raises(TypeError, match=r"no option 'tll'; use ttl \(options: ttl, "):
        decorator("report", tll=3)
    with pytest.raises(TypeError, match="is the name of the lock"):
        decorator(generator)
