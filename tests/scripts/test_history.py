"""history_add.lua and history_read.lua"""

import json

import pytest

from django_redlock.history.minute_stats import merge_texts

MINUTE = b"redlock:history:29000000"
TTL = 60_000


@pytest.fixture
def add(call):
    """`add({name: text}, most=, kept=)`: run history_add."""

    def add(texts, most=10, kept=5):
        words = json.dumps([word for pair in texts.items() for word in pair])
        return call("history_add", (MINUTE,), TTL, most, kept, words)

    return add


@pytest.fixture
def read(call):
    """`read(name)`: run history_read."""
    return lambda name: call("history_read", (MINUTE,), name)


def event(at):
    return f'[{1_700_000_000_000_000 + at},"acquired"]'


def test_first(add, read, redis):
    """The first text is stored as it is, with a ttl."""
    assert add({"": "a=2 w7=2", "stock": "a=2 w7=2\n" + event(1)}) == 0
    assert read("") == [b"a=2 w7=2\n", 0]
    assert read("stock") == [b"a=2 w7=2\n" + event(1).encode(), 0]
    assert 0 < redis.pttl(MINUTE) <= TTL


def test_sums(add, read):
    """Counts of several processes are added, also large ones."""
    add({"stock": "a=2 w7=2"})
    add({"stock": "r=1 a=9007199254740000 w7=1 w12=3"})
    assert read("stock")[0].split() == [b"a=9007199254740002", b"w7=3", b"r=1", b"w12=3"]


def test_last_events(add, read):
    """The last events are kept in order of time."""
    add({"stock": "a=3\n" + "\n".join(map(event, (1, 4, 6)))})
    add({"stock": "a=2\n" + "\n".join(map(event, (2, 5)))}, kept=3)
    assert read("stock")[0].decode().split("\n")[1:] == [event(4), event(5), event(6)]


@pytest.mark.parametrize("first", ["a=1 w3=1", "a=1 w3=1\n" + event(2), "a=1\n" + "\n".join(map(event, range(1, 9)))])
def test_merge_without_scripts(add, read, first):
    """Stores without scripts merge texts in the same way."""
    second = "a=2 r=4 w3=1 h7=2\n" + event(3) + "\n" + event(1)
    add({"stock": first})
    add({"stock": second})
    counts, *events = read("stock")[0].decode().split("\n")
    same, *lines = merge_texts([first, second]).split("\n")
    assert (sorted(counts.split()), events) == (sorted(same.split()), lines)


def test_too_many_names(add, read):
    """Names beyond the limit are counted together; known names and the total go on."""
    assert add({"": "a=2", "one": "a=1", "two": "a=1"}, most=2) == 0
    assert add({"": "a=3", "three": "a=1", "two": "a=1", "four": "a=1"}, most=2) == 2
    assert read("two") == [b"a=2\n", 1]
    assert read("three") == [b"", 1]
    assert read("}") == [b"a=2\n", 1]
    assert read("")[0] == b"a=5\n"


def test_any_name(add, read):
    """A name may contain any characters."""
    name = 'x"\\\n\t\0€🔒%s'
    add({name: "a=1"})
    assert read(name) == [b"a=1\n", 0]


def test_nothing(read, dump):
    """Reading an empty minute returns nothing and writes nothing."""
    assert read("stock") is None
    assert dump() == {}
