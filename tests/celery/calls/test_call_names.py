"""Equal calls have one lock name, however they are written; different calls have different names."""

import datetime as dt
import decimal
import enum
import os
import pickle
import uuid
from dataclasses import dataclass

import pytest
from django.contrib.auth.models import Group, User
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kombu.exceptions import EncodeError

from django_redlock.celery.messages import text_for
from django_redlock.core.keys import MAX_NAME_BYTES
from django_redlock.single_instance import lock_names
from django_redlock.single_instance.lock_names import LockNamer


def function(a, b=2, *rest, c=None, **more): ...


def canonical(value, serializer="json"):
    return lock_names.canonical(value, text_for(serializer))


def name(key=None, unique_on=None, /, *args, **kwargs):
    return LockNamer(function, key, unique_on).name("task", args, kwargs, text_for("json"))


def test_every_spelling_of_a_call_is_one_key():
    spellings = {name(None, None, 1), name(None, None, a=1), name(None, None, 1, b=2), name(None, None, b=2, a=1)}
    assert spellings == {"task(a=1,b=2,rest=[],c=null,more={})"}


@pytest.mark.parametrize(
    "values",
    [
        (1, "1", 1.5, True, None, [1], {"1": 1}, "null", "[1]"),
        (dt.date(2026, 1, 2), "2026-01-02", dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
        (decimal.Decimal("1.50"), decimal.Decimal("1.5"), "1.5", 1.5),
        (uuid.UUID(int=1), str(uuid.UUID(int=1)), uuid.UUID(int=2)),
        ({"a": [1, {"b": uuid.UUID(int=1)}]}, {"a": [1, {"b": uuid.UUID(int=2)}]}),
    ],
)
def test_types_and_values_stay_apart(values):
    """Values of different types that Celery's JSON carries have different keys, and equal values have equal keys."""
    names = [name(None, None, value) for value in values]
    assert len(set(names)) == len(values)
    assert names == [name(None, None, value) for value in values]


def test_what_arrives_equal_is_one_key():
    """Values that are equal after serialization have one key: tuples and lists, reordered dicts, JSON's text keys."""
    assert canonical((1, (2,))) == canonical([1, [2]])
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})
    assert canonical([{1: {2: (3,)}}]) == canonical([{"1": {"2": [3]}}])
    assert canonical({1: 2}, "pickle") != canonical({"1": 2}, "pickle")


@dataclass
class Money:
    amount: int


class Opaque:
    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize(
    "kind", [Money, Opaque, bytes, lambda value: {value, "x"}, range, lambda value: {(1, value): 2}]
)
def test_nothing_that_pickle_can_send_is_refused(kind):
    """Values of other serializers have keys that survive serialization and differ for other values."""
    one, same, other = kind(1), kind(1), kind(2)
    assert canonical(one, "pickle") == canonical(same, "pickle") != canonical(other, "pickle")
    assert canonical(pickle.loads(pickle.dumps(one)), "pickle") == canonical(one, "pickle")  # noqa: S301


class Person(Opaque):
    def __str__(self):
        return "John Smith"


class Size(enum.Enum):
    SMALL, LARGE = 1, 2

    def __str__(self):
        return "a size"


@pytest.mark.parametrize(
    "values",
    [
        (Person(1), Person(2)),
        (Person({"n": [1]}), Person({"n": [2]})),
        (Size.SMALL, Size.LARGE),
        (ValueError("x"), ValueError("x", None), TypeError("x")),
        (dt.time(12), dt.time(12, fold=1)),
        (set(), frozenset(), {}, [], {1}, frozenset({1})),
        (User(username="Jo", email="a@b.example"), User(username="Jo", email="c@d.example")),
    ],
    ids=lambda values: type(values[0]).__name__,
)
def test_different_objects_with_equal_texts(values):
    """Objects whose texts for people are equal have different keys, because they are different arguments."""
    names = [canonical(value, "pickle") for value in values]
    assert len(set(names)) == len(values)
    assert names == [canonical(pickle.loads(pickle.dumps(value)), "pickle") for value in values]  # noqa: S301


def test_model_instances_are_named_by_their_row():
    """Instances of one row have one key, whatever else they hold; those of other rows and models have other keys."""
    row = canonical(User(pk=1, username="Jo"), "pickle")
    assert row == "auth.User(1)" == canonical(User(pk=1, username="Al", last_login=dt.datetime.now(dt.UTC)), "pickle")
    assert canonical([User(pk=2, username="Jo")], "pickle") == "[auth.User(2)]"
    assert canonical(Group(pk=1, name="Jo"), "pickle") == "auth.Group(1)"


def test_a_default_that_can_not_be_sent_is_not_refused():
    """A default that can't be serialized is part of the key, but such an argument in a call is refused."""

    def task(a, sentinel=object(), period=dt.timedelta(days=1)): ...  # noqa: B008

    key = LockNamer(task, None, None)
    assert key.name("task", (1,), {}, text_for("json")) == "task(a=1,sentinel=...,period=...)"
    assert key.name("task", (1, 2), {}, text_for("json")) == "task(a=1,sentinel=2,period=...)"
    with pytest.raises(EncodeError):
        key.name("task", (1, object()), {}, text_for("json"))


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text() | st.integers(), children),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # it is the machine that is
@given(json)
def test_the_worker_computes_the_same_key(value):
    import json as library

    assert canonical(value) == canonical(library.loads(library.dumps(value)))


@pytest.mark.parametrize("key", [None, "file:{a}"])
def test_the_name_of_a_file_that_is_no_utf_8(key):
    """Names of files that are not UTF-8, which arrive with lone surrogates, have keys."""
    one, other = (os.fsdecode(b"/data/\xc3\xbc" + byte) for byte in (b"\xfe", b"\xff"))
    assert name(key, None, one) != name(key, None, other)
    assert name(key, None, one * 50) != name(key, None, other * 50)
    assert "/data/ü" in name(key, None, one)


def test_long_names_are_hashed():
    one, other = name(None, None, "x" * 5000), name(None, None, "x" * 4999 + "y")
    assert one.startswith("task(a=")
    assert len(one.encode()) <= MAX_NAME_BYTES
    assert one != other


def test_a_name_that_a_lock_can_have_is_not_cut():
    """The name of a task's lock is that of ``lock(NAME)`` up to the longest name, so that commands find it."""
    longest = "x" * MAX_NAME_BYTES
    assert name("{a}", None, longest) == longest


@pytest.mark.parametrize(
    ("key", "unique_on", "a", "expected"),
    [
        ("order:{a}:{b}", None, 17, "order:17:2"),  # with defaults
        ("order:{a[id]}", None, {"id": 4}, "order:4"),
        (lambda a, **_: f"by:{a}", None, 3, "by:3"),
        (None, (), 1, "task()"),
        (None, ("a",), 1, "task(a=1)"),
    ],
)
def test_names_by_key_and_by_unique_on(key, unique_on, a, expected):
    assert name(key, unique_on, a) == expected


def test_a_simple_signature_has_one_key_too():
    """The fast path for positional calls gives the same name as the general one."""

    def simple(a, b=2): ...

    key = LockNamer(simple, None, None)
    calls = [((1, 2), {}), ((1,), {}), ((), {"b": 2, "a": 1}), ((1,), {"b": 2})]
    assert {key.name("task", args, kwargs, text_for("json")) for args, kwargs in calls} == {"task(a=1,b=2)"}
    for args in ((), (1, 2, 3)):
        with pytest.raises(TypeError):
            key.name("task", args, {}, text_for("json"))


@pytest.mark.parametrize(("key", "error"), [("", ValueError), ("}x", ValueError), (3, TypeError)])
def test_names_that_no_lock_can_have(key, error):
    """A callable key that returns no valid lock name is refused with the reason."""
    with pytest.raises(error, match=r"lock's name|must be a text"):
        name(lambda **_: key, None, a=3)


def test_bound_tasks_have_no_self_in_their_key():

    def bound(self, a): ...

    assert LockNamer(bound, None, None, (None,)).name("task", (1,), {}, text_for("json")) == "task(a=1)"
