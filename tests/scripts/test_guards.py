"""The guards before an acquire script: what they remember of the leases that a server may have forgotten."""

import pytest

from django_redlock.core.guard import quarantine, replica_quarantine
from tests.support.replicas import Replicated

ANOTHER = b"0" * 40
MARKER = "sim:marker"


def touch(client, guard):
    """What the guard says when somebody looks."""
    run = guard.touch()
    return client.eval(run.script.source, len(run.keys), *run.keys, *run.args)


def restarted(client):
    """The server is another than the marker names, as after a restart with all data."""
    rest = client.get(MARKER).partition(b"|")[2]
    client.set(MARKER, ANOTHER + b"|" + rest)


def test_a_shorter_max_ttl_within_a_quarantine(redis):
    """A server that restarts in a quarantine goes on with what is left of it, though leases have become shorter."""
    redis.set(MARKER, ANOTHER + b"|0|60000|0|0")
    state, left, _ = touch(redis, quarantine("sim", 10))
    assert (state, left) == (2, 60_000)
    restarted(redis)
    state, left, _ = touch(redis, quarantine("sim", 10))
    assert state == 2
    assert 50_000 < left <= 60_000


def test_a_quarantine_that_is_over(redis):
    """A server that restarts after its quarantine waits for the leases that there are now."""
    redis.set(MARKER, ANOTHER + b"|1000|10000|0|0")
    assert touch(redis, quarantine("sim", 10))[:2] == [2, 10_000]


@pytest.fixture
def primary(start):
    """A client of a primary that has one replica."""
    with start(Replicated(1)).primary.client() as client:
        yield client


def test_a_shorter_max_ttl_while_replicas_are_awaited(primary):
    """A promoted server that waits for replicas still knows the longer leases when they come."""
    none_keep_up = replica_quarantine("sim", 10, -2, 1, "majority")
    all_keep_up = replica_quarantine("sim", 10, 5, 1, "majority")
    primary.set(MARKER, ANOTHER + b"|0|60000|1|0")
    assert touch(primary, none_keep_up)[:2] == [4, 0]
    assert touch(primary, none_keep_up)[:2] == [4, 0]
    restarted(primary)  # and once more
    assert touch(primary, none_keep_up)[:2] == [4, 0]
    state, left, _ = touch(primary, all_keep_up)
    assert (state, left) == (2, 60_000 + (5 + 1) * 1000)
    restarted(primary)
    state, left, _ = touch(primary, all_keep_up)
    assert state == 2
    assert 50_000 < left <= 66_000  # what was left of the quarantine: a promotion within one adds nothing to it
