"""The flows for one node, driven by hand, without a server and in virtual time."""

import math

import pytest

from django_redlock.core.algorithms.single_node import SingleNode
from django_redlock.core.flow.requests import AfterWait, BlockThenEval, EvalScript, Fault, Sleep
from django_redlock.core.keys import keys_for
from django_redlock.core.primitives.base import MAX_BLOCK, MUTEX
from django_redlock.core.values import Claim, Lease, Refusal, new_token, valid_until
from django_redlock.errors import LockUnavailable

TTL = 10.0
VALID = TTL - 0.01 * TTL - 0.002  # drift and Redis' precision taken off
SERVER = 5_000_000_000  # µs on the server's clock when ours shows 100
BROKEN = Fault(ConnectionError("connection refused"), where="there:6379")
STALE = Fault(ConnectionError("closed"), stale=True, where="there:6379")


class Fed:
    """A flow in virtual time, with its current `request` and its return value, `result`."""

    def __init__(self):
        self.now = 100.0
        self.algorithm = SingleNode(lambda: self.now)
        self.claim = Claim("stock", (keys_for(b"redlock", b"stock"),), new_token(), b"{}", TTL)
        self.request = self.result = None

    def begin(self, flow):
        self.flow = flow
        return self.reply(None)

    def ask(self, wait):
        """Begin an acquire."""
        return self.begin(self.algorithm.acquire(MUTEX, self.claim, self.now + wait))

    def acquire(self, wait):
        """Begin an acquire that SET NX does not grant."""
        return self.ask(wait).reply(None)

    def reply(self, reply, after=0.0):
        """Reply to the current request `after` seconds later."""
        self.now += after
        try:
            self.request = self.flow.send(reply)
        except StopIteration as end:
            self.request, self.result = None, end.value
        return self

    def lease(self):
        return Lease(self.claim, TTL, valid_until(self.now, TTL), 17, self.now)

    @property
    def server(self):
        return SERVER + round((self.now - 100) * 1e6)

    def refusal(self, left, holder=b"who"):
        """The reply of a node that refuses for `left` seconds."""
        return [0, round(left * 1000) if left != math.inf else -1, self.server, holder]


@pytest.fixture
def fed():
    return Fed()


def wait_argument(run):
    return int(run.args[4])


# ── acquire ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wait", [0, 60])
def test_granted_without_a_script(fed, wait):
    """A free lock takes one SET NX with the value that the script writes, and the lease counts from before it."""
    fed.ask(wait)
    run = MUTEX.acquire_request(fed.claim)
    assert fed.request[:3] == (fed.claim.keys.lock, run.args[0] + b" " + run.args[1], run.args[2])
    fed.reply(True, after=3)
    assert fed.result.valid_until == pytest.approx(100 + VALID, abs=1e-9)
    assert (fed.result.fencing_token, fed.result.since) == (None, 100)


@pytest.mark.parametrize(
    ("left", "wait", "pause"),
    [
        (7, 3, 3),
        (2, 3, 2.001),
        (7, 60, MAX_BLOCK),
        (math.inf, 60, MAX_BLOCK),
        (math.inf, math.inf, MAX_BLOCK),
        (0, 3, 0.001),
    ],
)
def test_longest_block(fed, left, wait, pause):
    """A waiter blocks until the holder's lease ends, its own deadline comes, or MAX_BLOCK has passed."""
    fed.acquire(wait)
    assert wait_argument(fed.request) > MAX_BLOCK * 1000  # in the queue until it has surely looked again
    fed.reply(fed.refusal(left))
    assert isinstance(fed.request, BlockThenEval)
    assert (fed.request.wake_key, fed.request.seconds) == (fed.claim.keys.wake, pytest.approx(pause, abs=1e-9))
    assert wait_argument(fed.request.script_call) == (-1 if pause == wait else -wait_argument_of_first(fed))


def wait_argument_of_first(fed):
    return round(MAX_BLOCK * 1000) + 1000


def test_exact_timeout(fed):
    """However often a waiter is woken in vain, it gives up exactly at its deadline."""
    fed.acquire(12.5).reply(fed.refusal(TTL), after=0.25)
    pauses = []
    while fed.request is not None:
        if isinstance(fed.request, EvalScript):  # woken in vain at its last try, it is listed again
            assert wait_argument(fed.request) < -1
            fed.reply(fed.refusal(TTL))
            continue
        pauses.append(fed.request.seconds)
        assert fed.now + fed.request.seconds <= 112.5 + 1e-9
        woken_early = len(pauses) % 2
        fed.reply(fed.refusal(TTL), after=fed.request.seconds * (0.5 if woken_early else 1))
    assert isinstance(fed.result, Refusal)
    assert fed.now == pytest.approx(112.5, abs=1e-9)
    assert len(pauses) > 3


def test_granted_at_the_last_moment(fed):
    fed.acquire(3).reply(fed.refusal(TTL))
    assert wait_argument(fed.request.script_call) == -1
    fed.reply(SERVER + 3_000_000, after=3)
    assert isinstance(fed.result, Lease)


def test_hand_over(fed):
    """A lease that was granted while the waiter was blocked begins at the time of the grant by the server's clock."""
    fed.acquire(60).reply(fed.refusal(TTL))
    ahead = 30_000_000  # µs: the clock of a server that has taken over meanwhile
    fed.reply(AfterWait(fed.server + ahead, 4), after=5)  # granted after 4 s, read after 5
    assert 103.9 < fed.result.since <= 104
    assert fed.result.valid_until == pytest.approx(fed.result.since + VALID, abs=1e-9)


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_hand_over_while_the_clock_jumps(fed, jump):
    """A jump of the server's clock can't make a lease begin before its request or in the future."""
    fed.acquire(60).reply(fed.refusal(TTL))
    asked = fed.now
    fed.reply(fed.server + jump * 1_000_000, after=4)
    assert asked <= fed.result.since <= fed.now


# ── faults ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reply", [0, -1])
def test_hand_over_was_repeated(fed, reply):
    """If the reply to a hand-over was lost, the result is unknown: the next holder may already have released."""
    following = fed.claim._replace(token=new_token())
    fed.begin(fed.algorithm.hand_over(MUTEX, fed.claim, following)).reply(STALE)
    with pytest.raises(LockUnavailable):
        fed.reply(reply)


@pytest.mark.parametrize("replies", [[BROKEN], [STALE, STALE], [STALE, BROKEN]])
def test_unavailable(fed, replies):
    """Without a reply the result is LockUnavailable with the node's error attached and chained, and not a refusal."""
    fed.acquire(60)
    with pytest.raises(LockUnavailable) as caught:
        [fed.reply(reply) for reply in replies]
    assert caught.value.__cause__ is replies[-1].error
    assert caught.value.errors == {"there:6379": replies[-1].error}
    assert isinstance(caught.value, ConnectionError)


def test_waiter_behind_its_own_lost_grant(fed):
    """An attempt whose reply was lost in a failover is released, so the waiter does not wait for its own lease."""
    fed.acquire(60).reply(fed.refusal(TTL))
    lost = fed.request.script_call.args[0]
    fed.reply(Fault(TimeoutError(), transient=True, unconfirmed=True))
    assert isinstance(fed.request, Sleep)
    fed.reply(None)
    assert fed.request.args[0] > lost  # the next attempt
    fed.reply(fed.refusal(TTL))
    assert [run.args[0] for run in fed.request.script_calls] == [lost]
    fed.reply([1])
    assert isinstance(fed.request, BlockThenEval)  # the release wakes it
    fed.reply(fed.server, after=1)
    assert isinstance(fed.result, Lease)


@pytest.mark.parametrize(
    ("faults", "unconfirmed"),
    [
        ([Fault(TimeoutError(), unconfirmed=True)], True),
        ([STALE._replace(unconfirmed=True), BROKEN], True),
        ([BROKEN], False),
    ],
)
def test_unconfirmed(fed, faults, unconfirmed):
    """The error says whether the server may have granted the lock."""
    fed.acquire(0)
    with pytest.raises(LockUnavailable) as caught:
        [fed.reply(fault) for fault in faults]
    assert caught.value.unconfirmed is unconfirmed


# ── extend, release ──────────────────────────────────────────────────────────────────────────


def test_extend_many(fed):
    """Many leases are extended in one pipeline, and each has its own outcome."""
    leases = [(fed.lease(), TTL), (fed.lease(), TTL), (fed.lease(), 2 * TTL)]
    fault = Fault(ValueError("WRONGTYPE"), refused=True)
    fed.begin(fed.algorithm.extend_many(MUTEX, leases)).reply([fault, 0, 1], after=1)
    assert fed.result[:2] == [fault, None]
    assert fed.result[2].valid_until == pytest.approx(100 + 2 * TTL * 0.99 - 0.002, abs=1e-9)
