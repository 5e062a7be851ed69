"""Waiters block, retry and give up, with each algorithm for one server, driven by hand in virtual time."""

import math

import pytest

from django_redlock.core.algorithms.cluster import Cluster
from django_redlock.core.algorithms.quarantine import standalone_quarantine
from django_redlock.core.algorithms.replicated import Replicated
from django_redlock.core.algorithms.retries import RETRY_SECONDS
from django_redlock.core.algorithms.single_node import FAILOVER_SECONDS, SingleNode
from django_redlock.core.flow.requests import Batch, BlockThenEval, EvalAndWait, EvalScript, Fault, Sleep
from django_redlock.core.keys import keys_for
from django_redlock.core.primitives.base import MAX_BLOCK, MUTEX
from django_redlock.core.primitives.multi import MULTILOCK
from django_redlock.core.values import Claim, Lease, Refusal, new_token
from django_redlock.errors import LockUnavailable

TTL = 10.0
SERVER = 5_000_000_000  # µs on the server's clock
GONE = Fault(ConnectionError("closed"), where="there:6379", transient=True)
MOVING = Fault(ConnectionError("TRYAGAIN"), where="there:6379", transient=True, migrating=True)
KEYS = tuple(keys_for(b"redlock", name) for name in (b"a", b"b"))
CLAIM = Claim("a", KEYS[:1], new_token(), b"{}", TTL)
RULES = {
    "single": (lambda clock: SingleNode(clock, standalone_quarantine("redlock", 60)), MUTEX, CLAIM),
    "replicas": (
        lambda clock: Replicated(clock, key_prefix="redlock", max_ttl=60, replicas=1, wait=1, lag=2, quarantine=True),
        MUTEX,
        CLAIM,
    ),
    "cluster": (
        lambda clock: Cluster(clock, standalone_quarantine("redlock", 60)),
        MULTILOCK,
        CLAIM._replace(all_keys=KEYS, require_all=True),
    ),
}


class Waiter:
    """An acquire with its current `request`, its `result`, and the tokens that it has `undone`."""

    def __init__(self, rule, wait):
        self.now, self.undone = 100.0, []
        make, primitive, claim = RULES[rule]
        self.flow = make(lambda: self.now).acquire(primitive, claim, self.now + wait)
        self.request, self.result = next(self.flow), None

    def reply(self, reply, after=0.0):
        """Reply to the current request `after` seconds later."""
        self.now += after
        confirmed = isinstance(self.request, EvalAndWait) and not isinstance(reply, Fault)
        try:
            self.request = self.flow.send(([reply], 1) if confirmed else reply)
            while isinstance(self.request, Batch):
                self.undone += [run.args[0] for run in self.request.calls]
                self.request = self.flow.send([1] * len(self.request.calls))
        except StopIteration as end:
            self.request, self.result = None, end.value
        return self

    def refused(self, left=5.0, after=0.0):
        """Reply with a refusal for `left` seconds, so that the waiter blocks."""
        return self.reply([0, -1 if left == math.inf else round(left * 1000), SERVER, b"who"], after)

    def token(self):
        run = self.request.calls[0] if isinstance(self.request, EvalAndWait) else self.request
        assert isinstance(run, EvalScript)
        return run.args[0]


@pytest.fixture(params=sorted(RULES))
def begin(request):
    return lambda wait: Waiter(request.param, wait)


def woken(waiter, reply):
    """Reply after a block of one second. Some algorithms block and evaluate in one request, some in two."""
    waiter.now += 1
    return waiter.reply(reply) if isinstance(waiter.request, BlockThenEval) else waiter.reply(None).reply(reply)


def quarantined(seconds):
    return [2, round(seconds * 1000), SERVER]


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
def test_longest_block(left, wait, pause):
    """A waiter blocks until the holder's lease ends, its own deadline comes, or MAX_BLOCK has passed."""
    waiter = Waiter("single", wait).refused(left)
    assert isinstance(waiter.request, BlockThenEval)
    assert waiter.request.seconds == pytest.approx(pause, abs=1e-9)


def test_exact_timeout():
    """However often a waiter is woken in vain, it gives up exactly at its deadline."""
    waiter, pauses = Waiter("single", 12.5).refused(TTL, after=0.25), []
    while waiter.request is not None:
        if isinstance(waiter.request, EvalScript):  # woken in vain at its last try, it is listed again
            waiter.refused(TTL)
            continue
        pauses.append(waiter.request.seconds)
        woken_early = len(pauses) % 2
        waiter.refused(TTL, after=waiter.request.seconds * (0.5 if woken_early else 1))
    assert isinstance(waiter.result, Refusal)
    assert waiter.now == pytest.approx(112.5, abs=1e-9)
    assert len(pauses) > 3


def test_waiter_behind_its_own_lost_grant():
    """An attempt whose reply was lost in a failover is released, so the waiter does not wait for its own lease."""
    waiter = Waiter("single", 60).refused()
    lost = waiter.request.call.args[0]
    waiter.reply(Fault(TimeoutError(), transient=True, unconfirmed=True)).reply(None)
    assert waiter.token() > lost  # the next attempt
    waiter.refused()
    assert waiter.undone == [lost]
    assert isinstance(waiter.request, BlockThenEval)  # the release wakes it
    assert isinstance(waiter.reply(SERVER, after=1).result, Lease)


@pytest.mark.parametrize("reply", [GONE, MOVING], ids=["gone", "moving"])
def test_waiter_retries(begin, reply):
    """A waiter repeats its request, each time with a new token, until a server replies."""
    waiter, tokens = begin(60).refused(), set()
    woken(waiter, reply)
    for _ in range(3):
        assert isinstance(waiter.request, Sleep)
        assert RETRY_SECONDS[0] <= waiter.request.seconds <= RETRY_SECONDS[1]
        waiter.reply(None, after=waiter.request.seconds)
        tokens.add(waiter.token())
        waiter.reply(reply)
    assert len(tokens) == 3
    waiter.reply(None, after=waiter.request.seconds)
    token = waiter.token()
    while waiter.request is not None:  # slot by slot
        waiter.reply(SERVER)
    assert isinstance(waiter.result, Lease)
    assert waiter.result.claim.token == token


@pytest.mark.parametrize(("wait", "ends"), [(10, 10), (1000, 1 + FAILOVER_SECONDS)])
def test_deadline(begin, wait, ends):
    """A waiter repeats its request until its deadline or the end of the retry period."""
    waiter = begin(wait).refused()
    with pytest.raises(LockUnavailable):  # noqa: PT012
        woken(waiter, GONE)
        while waiter.request is not None:
            waiter.reply(None, after=waiter.request.seconds).reply(GONE)
    assert waiter.now == pytest.approx(100 + ends, abs=1e-6)


@pytest.mark.parametrize("left", [5, FAILOVER_SECONDS + 5])
def test_quarantine(begin, left):
    """A waiter at a server in quarantine sleeps until the quarantine ends."""
    waiter = woken(begin(60).refused(), quarantined(left))
    assert waiter.request == Sleep(left)
    waiter.reply(None, after=left).reply(SERVER)
    assert waiter.result or isinstance(waiter.request, EvalScript)  # of several slots the next


def test_quarantine_beyond_the_deadline(begin):
    """A waiter whose deadline is before the end of the quarantine gets LockUnavailable at once."""
    waiter = begin(30).refused()
    with pytest.raises(LockUnavailable, match="quarantine"):
        woken(waiter, quarantined(40))
    assert waiter.now == 101
