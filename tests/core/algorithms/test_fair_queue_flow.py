"""The requests of flows for waiters in a fair queue, driven by hand."""

import pytest

from django_redlock.core.algorithms.lease_requests import restore_request
from django_redlock.core.algorithms.redlock import Redlock
from django_redlock.core.algorithms.single_node import SingleNode
from django_redlock.core.flow.requests import Block, EvalScript, Fault, SendToAll, Sleep
from django_redlock.core.keys import keys_for
from django_redlock.core.primitives.base import MAX_BLOCK, MAX_BLOCK_IN_QUEUE, SEMAPHORE
from django_redlock.core.primitives.fair import FAIR, READ, READERS_BEHIND_WRITERS, WRITE
from django_redlock.core.values import Claim, Lease, new_token
from django_redlock.errors import LockError, LockUnavailable

KEYS = keys_for(b"redlock", b"stock")
SERVER = 5_000_000_000
UPGRADE = Fault(ValueError("UPGRADE a reader can not begin to write"), where="there:6379")
BROKEN = Fault(ConnectionError("connection refused"), where="there:6379")


@pytest.fixture
def claim():
    return Claim("stock", (KEYS,), new_token(), b"{}", 10.0, payload=b"me")


def refusal(left=7_000, owner=b"who"):
    """The reply of a node that refuses for `left` ms."""
    return [0, left, SERVER, owner]


@pytest.mark.parametrize("primitive", [FAIR, READ, WRITE])
def test_blocks_on_its_own_list(claim, primitive):
    """A waiter in a fair queue blocks on a wake-up list of its own for less time than it is listed, and then sends a
    second request.
    """
    flow = SingleNode(lambda: 100.0).acquire(primitive, claim, 130.0)
    asked = next(flow)
    assert (type(asked), int(asked.args[4])) == (EvalScript, 900)
    signal = flow.send(refusal())
    assert signal == Block(KEYS.wake + b":" + claim.acquisition_id, MAX_BLOCK_IN_QUEUE, 0, [])
    asked = flow.send(None)
    assert (type(asked), int(asked.args[4])) == (EvalScript, -900)
    with pytest.raises(StopIteration) as end:
        flow.send(SERVER)
    assert isinstance(end.value.value, Lease)


@pytest.mark.parametrize(("primitive", "arg"), [(FAIR, 5), (READ, 5), (WRITE, 5)])
def test_a_restored_lease_does_not_queue(claim, primitive, arg):
    """A holder that restores its lease on a server that has lost its data does not queue."""
    assert primitive.acquire_request(claim).args[arg] == b"2"
    assert restore_request(primitive, claim, 10.0, 0).args[arg] == b"0"


def test_reader_that_asks_to_write(claim):
    """A reader that claims the write lock gets an error that tells it to release the read lock first."""
    flow = SingleNode(lambda: 100.0).acquire(WRITE, claim, 130.0)
    next(flow)
    with pytest.raises(LockError, match="release `read` first") as caught:
        flow.send(UPGRADE)
    assert not isinstance(caught.value, LockUnavailable)


@pytest.mark.parametrize(
    ("replies", "error", "told"),
    [
        ([UPGRADE] * 3 + [SERVER] * 2, LockError, "release `read` first"),
        ([UPGRADE] * 2 + [BROKEN] * 3, LockUnavailable, "no majority"),
    ],
)
def test_reader_that_asks_to_write_on_several_nodes(claim, replies, error, told):
    """The reply that a reader asks to write counts if a majority sends it; a minority may show votes of an earlier
    attempt.
    """
    flow = Redlock(5, lambda: 100.0).acquire(WRITE._replace(queue_order=READERS_BEHIND_WRITERS), claim, 130.0)
    assert isinstance(next(flow), SendToAll)
    assert isinstance(flow.send(replies), SendToAll)  # frees what was granted
    with pytest.raises(error, match=told):
        flow.send([None] * 5)


def test_waits_for_a_permit_longer_and_longer(claim):
    """A waiter for a semaphore's permit blocks on a node that refused it, and blocks longer after each time-out without
    a wake-up.
    """
    flow = Redlock(5, lambda: 100.0, shuffle=max).acquire(SEMAPHORE._replace(limit=2), claim, 10_000.0)
    assert isinstance(next(flow), SendToAll)
    pauses = []
    for _ in range(8):
        flow.send([SERVER, refusal(owner=b"a"), refusal(owner=b"b"), refusal(owner=b"a"), SERVER])
        signal = flow.send([None] * 5)
        assert (signal.key, signal.node) == (KEYS.wake, 1)
        pauses.append(signal.seconds)
        assert isinstance(flow.send(None), SendToAll)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.05, pytest.approx(1.6))
    assert pauses[-1] < MAX_BLOCK


def test_a_node_that_can_not_wake(claim):
    """If the node on which a waiter would block is not reachable, the waiter sleeps."""
    flow = Redlock(3, lambda: 100.0, shuffle=max).acquire(READ, claim, 130.0)
    next(flow)
    flow.send([refusal()] * 3)
    assert isinstance(flow.send([None] * 3), Block)
    assert flow.send(BROKEN) == Sleep(0.05)
