"""The flow for a quorum, driven by hand: split votes, nodes that do not reply, and the votes that a grant needs."""

import pytest

from django_redlock.core.algorithms.quarantine import standalone_quarantine
from django_redlock.core.algorithms.redlock import BACKOFF_SECONDS, Redlock
from django_redlock.core.algorithms.votes import votes_needed
from django_redlock.core.flow.drivers import drive
from django_redlock.core.flow.requests import Block, Fault, SendToAll, Sleep
from django_redlock.core.keys import keys_for
from django_redlock.core.primitives.base import MUTEX, READERS_BEHIND_WRITERS
from django_redlock.core.primitives.fair import WRITE
from django_redlock.core.values import Claim, Lease, new_token
from django_redlock.errors import LockError, LockUnavailable

SERVER = 5_000_000_000  # µs on the servers' clocks
UPGRADE = Fault(ValueError("UPGRADE a reader can not begin to write"), where="there:6379")
BROKEN = Fault(ConnectionError("connection refused"), where="there:6379")


def refused_by(holder):
    """The reply of a node that refuses for ten seconds because of `holder`."""
    return [0, 10_000, SERVER, holder]


def test_a_split_vote():
    """After a split vote all votes are released, and the next attempt follows a random pause, with a new token."""
    drawn = iter((0.011, 0.047))
    rule = Redlock(5, lambda: 100.0, None, lambda *bounds: next(drawn) if bounds == BACKOFF_SECONDS else -1)
    claim = Claim("stock", (keys_for(b"redlock", b"stock"),), new_token(), b"{}", 10.0)
    flow = rule.acquire(MUTEX, claim, 105.0)
    asked, tokens, answers = next(flow), set(), [SERVER, None, *map(refused_by, (b"one", b"another", b"a third"))]
    for pause in (0.011, 0.047):
        assert not asked.decided([*answers[:4], None])
        assert asked.decided(answers)  # without the second
        tokens |= {ask.args[0] for ask in asked.requests}
        freed = flow.send(answers)
        assert [(ask.script.name, ask.node) for ask in freed.requests] == [("mutex_release", node) for node in range(5)]
        assert {ask.args[0] for ask in freed.requests} <= tokens
        assert freed.acquisition_id == asked.acquisition_id
        assert flow.send([None] * 5) == Sleep(pause)
        asked = flow.send(None)
    assert len(tokens) == 2


def test_a_node_is_down():
    """A waiter that two of three nodes refuse blocks until the release: the silent node may have its vote."""
    rule = Redlock(3, lambda: 100.0, None, lambda *_: 0.02)
    claim = Claim("stock", (keys_for(b"redlock", b"stock"),), new_token(), b"{}", 10.0)
    flow = rule.acquire(MUTEX, claim, 105.0)
    asked, answers = next(flow), [Fault(ConnectionError()), refused_by(b"one"), None]
    assert asked.decided(answers)
    flow.send(answers)  # it is given back
    waits = flow.send([None] * 3)
    assert type(waits) is Block
    assert (waits.node, waits.seconds) == (1, 0.02)


@pytest.mark.parametrize("hangs", [True, False])
def test_many_votes_of_one_node(hangs):
    """A node that has lost many locks gets them back one by one; if it then hangs, the renewal waits for it once."""
    rule = Redlock(3, lambda: 100.0, None, lambda *_: 0.02)
    claims = [Claim(name, (keys_for(b"redlock", name.encode()),), new_token(), b"{}", 10.0) for name in "abc"]
    leases = [Lease.granted(claim, 99.0, SERVER)._replace(nodes=(0, 1, 2)) for claim in claims]
    asked = []

    def perform(request):
        asked.append(request)
        if len(asked) == 1:
            return [[1] * 3, [1] * 3, [0] * 3]
        return [Fault(TimeoutError()) if hangs else [SERVER]]

    outcomes = drive(rule.extend_many(MUTEX, [(lease, 10.0) for lease in leases]), perform)
    assert all(type(outcome) is Lease for outcome in outcomes)
    restored = [request for (request,) in (each.requests for each in asked[1:])]
    expected = claims[:1] if hangs else claims
    assert [(batch.node, batch.calls[0].args[0]) for batch in restored] == [(2, each.token) for each in expected]


@pytest.mark.parametrize(("replies", "restored"), [((1, 1, 1, 0, -1), [3]), ((1, 1, 0, 0, -1), [2])])
def test_which_nodes_get_votes(replies, restored):
    """After a renewal by a majority, each free node gets its vote; without, a node that has replied to the acquire."""
    rule = Redlock(5, lambda: 100.0, standalone_quarantine("redlock", 60))
    claim = Claim("stock", (keys_for(b"redlock", b"stock"),), new_token(), b"{}", 10.0)
    lease, asked = Lease.granted(claim, 99.0, SERVER)._replace(nodes=(0, 1, 2)), []

    def perform(request):
        asked.append(request)
        return [[reply] for reply in replies] if len(asked) == 1 else [[[1, 0, SERVER], SERVER]]

    assert type(drive(rule.extend_many(MUTEX, [(lease, 10.0)]), perform)[0]) is Lease
    assert [each.node for each in asked[1].requests] == restored


@pytest.mark.parametrize(
    ("replies", "error", "told"),
    [
        ([UPGRADE] * 3 + [SERVER] * 2, LockError, "release `read` first"),
        ([UPGRADE] * 2 + [BROKEN] * 3, LockUnavailable, "no majority"),
    ],
)
def test_reader_that_asks_to_write(replies, error, told):
    """The error that a reader asks to write needs a majority: a minority may show votes of an earlier attempt."""
    claim = Claim("stock", (keys_for(b"redlock", b"stock"),), new_token(), b"{}", 10.0, holder=b"me")
    flow = Redlock(5, lambda: 100.0).acquire(WRITE._replace(queue_order=READERS_BEHIND_WRITERS), claim, 130.0)
    assert isinstance(next(flow), SendToAll)
    assert isinstance(flow.send(replies), SendToAll)  # frees what was granted
    with pytest.raises(error, match=told):
        flow.send([None] * 5)


@pytest.mark.parametrize("nodes", range(1, 8))
@pytest.mark.parametrize("limit", range(1, 8))
def test_votes(nodes, limit):
    """With `limit` votes on each node, at most `limit` holders reach the quorum, and one vote less would allow more."""
    need = votes_needed(nodes, limit)
    assert most_holders(nodes, limit, need) == limit
    assert need == 1 or most_holders(nodes, limit, need - 1) > limit


def most_holders(nodes, limit, votes):
    """Return how many holders can reach that many votes when each node has `limit` votes."""
    left, holders = [limit] * nodes, 0
    while len(richest := sorted((node for node in range(nodes) if left[node]), key=left.__getitem__)[-votes:]) == votes:
        holders += 1
        for node in richest:
            left[node] -= 1
    return holders
