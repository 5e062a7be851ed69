"""quarantine.lua and quarantine_replicas.lua: the marker of the leases that a server may have forgotten"""

import pytest

from django_redlock.core.algorithms.quarantine import replica_quarantine, standalone_quarantine
from tests.support.replicas import Replicated

ANOTHER = b"master_replid:" + b"0" * 40
MARKER = "sim:marker"


def touch(client, guard):
    """Return the reply of the quarantine script."""
    run = guard.noop_request()
    return client.eval(run.script.source, len(run.keys), *run.keys, *run.args)


def restarted(client):
    """Make the marker name another run of the server, as after a restart with all data."""
    rest = client.get(MARKER).partition(b"|")[2]
    client.set(MARKER, ANOTHER + b"|" + rest)


def identity(client):
    return f"master_replid:{client.info('replication')['master_replid']}".encode()


ALONE = standalone_quarantine("sim", 10)


def test_a_shorter_max_ttl_within_a_quarantine(redis):
    """A server that restarts in a quarantine keeps its remaining time, even if max_ttl is shorter now."""
    redis.set(MARKER, ANOTHER + b"|60000")
    assert touch(redis, ALONE)[:2] == [2, 60_000]
    restarted(redis)
    state, left, _ = touch(redis, ALONE)
    assert state == 2
    assert 50_000 < left <= 60_000


def test_a_quarantine_that_is_over(redis):
    """A server that restarts after its quarantine begins one of the current max_ttl."""
    redis.set(MARKER, ANOTHER + b"|10000 1000|0")
    assert touch(redis, ALONE)[:2] == [2, 10_000]


def test_the_end_of_a_quarantine_removes_its_times(redis):
    """The end of a quarantine removes its times from the marker, so that a clock set back later begins none."""
    redis.set(MARKER, identity(redis) + b"|10000 1000|1")
    assert touch(redis, ALONE)[:2] == [1, 0]
    assert redis.get(MARKER) == identity(redis) + b"|10000"


def begins_quarantine(client, guard, seconds):
    """Check that a marker that can't be read counts as that of another server."""
    for marker in b"x", b"role", ANOTHER, ANOTHER[:20] + b"|10000", identity(client) + b" what":
        client.set(MARKER, marker)
        assert touch(client, guard)[:2] == [2, 1000 * seconds], marker


def test_an_unreadable_marker_begins_a_quarantine(redis):
    begins_quarantine(redis, ALONE, 10)


def test_a_marker_that_counts_replicas_is_kept(redis):
    """Clients of a standalone server keep a marker that primaries with replicas have written."""
    redis.set(MARKER, identity(redis) + b"|10000|2")
    assert touch(redis, ALONE)[:2] == [1, 0]
    assert redis.get(MARKER) == identity(redis) + b"|10000|2"
    assert touch(redis, standalone_quarantine("sim", 20))[:2] == [3, 10_000]


@pytest.fixture
def primary(start):
    """A client of a primary that has one replica."""
    with start(Replicated(1)).primary.client() as client:
        yield client


def test_a_shorter_max_ttl_while_replicas_are_awaited(primary):
    """A promoted server that waits for replicas keeps the longer leases of its marker."""
    none_keep_up = replica_quarantine("sim", 10, -2, 1, "majority")
    all_keep_up = replica_quarantine("sim", 10, 5, 1, "majority")
    primary.set(MARKER, ANOTHER + b"|60000|1")
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


def test_a_primary_in_service(primary):
    """The marker of a primary has the highest number of replicas, and is not written while as many follow."""
    guard, own = replica_quarantine("sim", 10, 5, 1, "majority"), identity(primary)
    primary.set(MARKER, own + b"|10000")  # armed
    assert touch(primary, guard)[:2] == [1, 0]
    assert primary.get(MARKER) == own + b"|10000|1"
    assert touch(primary, guard)[:2] == [1, 0]
    assert touch(primary, replica_quarantine("sim", 20, 5, 1, "majority"))[:2] == [3, 10_000]
    assert touch(primary, replica_quarantine("sim", 10, 5, 0, "majority"))[:2] == [5, 1]
    assert touch(primary, replica_quarantine("sim", 10, -2, 1, "majority"))[:2] == [4, 0]
    primary.set(MARKER, own + b"|10000|5")  # most of its replicas are gone
    state, alive, _, needed = touch(primary, guard)
    assert (state, alive, needed) == (4, 1, 3)
    primary.set(MARKER, own + b"|10000|1 1000|1")  # its quarantine has ended
    assert touch(primary, guard)[:2] == [1, 0]
    assert primary.get(MARKER) == own + b"|10000|1"


def test_an_unreadable_marker_of_a_primary_begins_a_quarantine(primary):
    begins_quarantine(primary, replica_quarantine("sim", 10, 5, 1, "majority"), 16)
