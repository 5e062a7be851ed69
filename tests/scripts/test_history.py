"""history_add.lua and history_read.lua"""

import json

import pytest

MINUTE = b"redlock:history:29000000"
TTL = 60_000


@pytest.fixture
def add(call):
    """`add((name, kind, value), …)`: run history_add."""
    return lambda *fields, most=10, kept=2: call(
        "history_add", (MINUTE,), TTL, most, kept, json.dumps([str(word) for field in fields for word in field])
    )


@pytest.fixture
def read(call):
    """`read(field, …)`: run history_read."""
    return lambda *fields: call("history_read", (MINUTE,), json.dumps(fields))


def test_sums(add, read, redis):
    """Counts of several processes are added, and the hash has a ttl."""
    assert add(("", "acquired", 2), ("stock", "events", "a\n"), ("stock", "acquired", 2)) == 0
    assert add(("", "acquired", 2**60), ("stock", "refused", 1)) == 0
    assert read("acquired ", "acquired stock", "refused stock") == [b"1152921504606846978", b"2", b"1"]
    assert 0 < redis.pttl(MINUTE) <= TTL


def test_last_events(add, read):
    """The last events of a name are kept, and ten times more of the whole store."""
    for number in range(30):
        add(("stock", "events", f"{number}\n"), ("", "events", f"{number}\n"))
    assert read("events stock") == [b"28\n29\n"]
    assert read("events ")[0].split() == [b"%d" % number for number in range(10, 30)]


def test_too_many_names(add, read):
    """A new name is left out if the hash is full; known names and the total go on."""
    assert add(("one", "events", "a\n"), ("one", "acquired", 1), most=2) == 0
    assert add(("two", "events", "a\n"), ("two", "acquired", 1), ("one", "refused", 1), ("", "lost", 1), most=2) == 2
    assert read("events two", "acquired two", "refused one", "lost ") == [None, None, b"1", b"1"]


def test_any_name(add, read):
    """A name may contain any characters."""
    name = 'x"\\\n\t\0€🔒%s'
    add((name, "events", "a\n"), (name, "acquired", 1))
    assert read(f"acquired {name}", f"events {name}") == [b"1", b"a\n"]


def test_nothing(read, dump):
    """Reading an empty minute returns nothing and writes nothing."""
    assert read("acquired stock") == [None]
    assert dump() == {}
