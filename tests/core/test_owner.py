"""The description of the holder in a lock's value."""

import _thread
import threading
from datetime import UTC, datetime

import pytest

from django_redlock.core.owner import LONGEST, Owner, describe_owner


def test_a_thread_of_another_library_leaves_no_entry():
    """Describing a thread that was not started through `threading` doesn't register it there for ever."""
    before, done = set(threading.enumerate()), _thread.allocate_lock()
    done.acquire()
    told = []

    def work():
        told.append(Owner.parse(describe_owner()))
        done.release()

    _thread.start_new_thread(work, ())
    assert done.acquire(timeout=10)
    assert told[0].thread
    assert not set(threading.enumerate()) - before


def test_a_thread_is_named():
    """A thread that has a name is known by it."""
    told = []
    thread = threading.Thread(target=lambda: told.append(Owner.parse(describe_owner())), name="night shift")
    thread.start()
    thread.join(10)
    assert told[0].thread == "night shift"


def test_fields_of_ones_own():
    """They are beside ours, or take the place of ours where they have its name and are of its kind."""
    owner = Owner.parse(describe_owner({"user": "ada", "pid": "7", "host": "till", "since": 1}, ttl=30))
    assert (owner.host, owner.pid, owner.since, owner.ttl, owner.extra) == ("till", 7, 1.0, 30.0, {"user": "ada"})


@pytest.mark.parametrize(
    "field", [{"pid": "z"}, {"ttl": None}, {"since": datetime.now(UTC)}, {"pid": float("inf")}, {"since": float("nan")}]
)
def test_a_field_that_can_not_take_the_place_of_ours(field):
    """That is said when it is given; or whoever looks would find nothing but a text that no program can read."""
    with pytest.raises(ValueError, match=f"owner's '{next(iter(field))}'"):
        describe_owner({"user": "ada", **field})


@pytest.mark.parametrize("value", [float("nan"), [[[[[]]]]], {"a": float("-inf")}], ids=repr)
def test_a_value_that_can_not_be_read_back(value):
    """JSON knows no such number, and nobody shows lists within lists for ever."""
    with pytest.raises(ValueError, match="owner's 'more'"):
        describe_owner({"more": value})


def test_too_long():
    """An owner of more bytes than are read is refused when it is given; the longest that is taken can be read."""
    room = LONGEST - len(describe_owner("")) - 1  # the digits of the time vary
    assert Owner.parse(describe_owner("x" * room)).label == "x" * room
    with pytest.raises(ValueError, match="8192 at most"):
        describe_owner("x" * (room + 2))


def test_what_can_not_be_encoded():
    """A lone surrogate stays visible as an escape, an emoji stays what it is."""
    owner = Owner.parse(describe_owner({"caf\udce9": "\udce9\0", "smile": "\U0001f600"}))
    assert owner.extra == {"caf\\udce9": "\\udce9\\x00", "smile": "\U0001f600"}
