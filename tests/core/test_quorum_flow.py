"""The flow for a quorum, fed by hand: what it does about a split vote, and about one with nodes that are silent."""

from django_redlock.core.flows.quorum import BACKOFF, Quorum
from django_redlock.core.keys import keys_for
from django_redlock.core.lease import Claim, new_token
from django_redlock.core.primitives import MUTEX
from django_redlock.core.requests import Fault, Signal, Sleep

SERVER = 5_000_000_000  # µs on the servers' clocks


def refused_by(holder):
    """A node's answer: for ten seconds."""
    return [0, 10_000, SERVER, holder]


def test_a_split_vote():
    """Given back on all nodes, also where no answer has come yet; then a pause at random, and a new token."""
    drawn = iter((0.011, 0.047))
    rule = Quorum(5, lambda: 100.0, None, lambda *bounds: next(drawn) if bounds == BACKOFF else -1)
    claim = Claim("stock", keys_for(b"redlock", b"stock"), new_token(), b"{}", 10.0)
    flow = rule.acquire(MUTEX, claim, 105.0)
    asked, tokens, answers = next(flow), set(), [SERVER, None, *map(refused_by, (b"one", b"another", b"a third"))]
    for pause in (0.011, 0.047):
        assert not asked.decided([*answers[:4], None])
        assert asked.decided(answers)  # without the second
        tokens |= {ask.args[0] for ask in asked.asks}
        freed = flow.send(answers)
        assert [(ask.script.name, ask.node) for ask in freed.asks] == [("mutex_release", node) for node in range(5)]
        assert {ask.args[0] for ask in freed.asks} <= tokens
        assert freed.family == asked.family
        assert flow.send([None] * 5) == Sleep(pause)
        asked = flow.send(None)
    assert len(tokens) == 2


def test_a_node_is_down():
    """Those that refused, and the one that is silent, may be a majority for the holder: its release is waited for."""
    rule = Quorum(3, lambda: 100.0, None, lambda *_: 0.02)
    claim = Claim("stock", keys_for(b"redlock", b"stock"), new_token(), b"{}", 10.0)
    flow = rule.acquire(MUTEX, claim, 105.0)
    asked, answers = next(flow), [Fault(ConnectionError()), refused_by(b"one"), None]
    assert asked.decided(answers)
    flow.send(answers)  # it is given back
    waits = flow.send([None] * 3)
    assert type(waits) is Signal
    assert (waits.node, waits.seconds) == (1, 0.02)
