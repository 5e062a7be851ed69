"""The description of the holder in a lock's value."""

from datetime import UTC, datetime

import pytest

from django_redlock.core.owner import MAX_OWNER_BYTES, Owner, describe_owner


def test_the_main_thread_is_not_stored():
    """An owner without a thread is in the main thread, so most requests are shorter. A foreign value has no thread."""
    assert b"thread" not in describe_owner()
    assert Owner.parse(describe_owner()).thread == "MainThread"
    assert Owner.parse('{"label":"theirs"}').thread == ""


def test_fields_of_the_user():
    """Owner fields of the user are added, and replace ours if they have the same name and type."""
    owner = Owner.parse(describe_owner({"user": "ada", "pid": "7", "host": "till", "since": 1}, ttl=30))
    assert (owner.host, owner.pid, owner.since, owner.ttl, owner.extra) == ("till", 7, 1.0, 30.0, {"user": "ada"})


@pytest.mark.parametrize(
    "field", [{"pid": "z"}, {"ttl": None}, {"since": datetime.now(UTC)}, {"pid": float("inf")}, {"since": float("nan")}]
)
def test_a_field_that_can_not_take_the_place_of_ours(field):
    """An owner field with the name of ours and another type is refused: it could not be read back."""
    with pytest.raises(ValueError, match=f"owner's '{next(iter(field))}'"):
        describe_owner({"user": "ada", **field})


@pytest.mark.parametrize("value", [float("nan"), [[[[[]]]]], {"a": float("-inf")}], ids=repr)
def test_a_value_that_can_not_be_read_back(value):
    """An owner field that JSON can't hold, or that is nested too deep, is refused."""
    with pytest.raises(ValueError, match="owner's 'more'"):
        describe_owner({"more": value})


@pytest.mark.parametrize("value", [[[[[]]]], {"a": {"b": {"c": {"d": 1}}}}], ids=repr)
def test_a_deep_value(value):
    """An owner field with as many levels as are allowed can be read back, and so can the other fields."""
    owner = Owner.parse(describe_owner({"more": value}))
    assert (owner.extra, owner.thread) == ({"more": value}, "MainThread")


def test_too_long():
    """An owner with more bytes than the limit is refused when it is given, and the longest one can be read back."""
    room = MAX_OWNER_BYTES - len(describe_owner("")) - 1  # the digits of the time vary
    assert Owner.parse(describe_owner("x" * room)).label == "x" * room
    with pytest.raises(ValueError, match="8192 at most"):
        describe_owner("x" * (room + 2))


def test_lone_surrogates():
    """In an owner a lone surrogate becomes a visible escape, and an emoji stays as it is."""
    owner = Owner.parse(describe_owner({"caf\udce9": "\udce9\0", "smile": "\U0001f600"}))
    assert owner.extra == {"caf\\udce9": "\\udce9\\x00", "smile": "\U0001f600"}
