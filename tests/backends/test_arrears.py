"""What is remembered of releases that a node has missed: not too much, and not for ever."""

import pytest

from django_redlock.backends import arrears
from django_redlock.backends.arrears import MOST, Arrears
from django_redlock.backends.locations import node_for
from django_redlock.core.keys import keys_for
from django_redlock.core.lease import Claim, new_token
from django_redlock.core.primitives import MUTEX
from testproject.redis_server import RedisServer
from tests.support.service import poll

KEYS = keys_for(b"redlock", b"stock")


@pytest.fixture
def nobody():
    """A server that is not started."""
    return RedisServer()


@pytest.fixture
def missing(monkeypatch, nobody):
    """The arrears of a node at an address where nobody is, which are soon forgotten."""
    monkeypatch.setattr(arrears, "LASTING", 0.5)
    return Arrears([node_for(nobody.url, 0.1)])


def claim():
    return Claim("stock", KEYS, new_token(), b"{}", 10.0)


def refused(client):
    """How many scripts the server has answered with an error."""
    return sum(row["rejected_calls"] for row in client.info("commandstats").values())


def test_bounded(missing):
    """Of many releases the last are remembered, for a while; the thread that would tell the node ends with them."""
    runs = [MUTEX.free(claim()) for _ in range(MOST + 5)]
    for run in runs:
        missing.missed([run], 0)
    assert [run for _, run in missing._missed[0]] == runs[5:]
    poll(lambda: not missing._missed, timeout=5, what="nothing remembered")


def test_what_was_never_asked(missing):
    """A node that was left out when the lock was asked for, and when it was freed, has no vote to be freed."""
    one, other = claim(), claim()
    missing.absent(one.family, [MUTEX.take(one)], 0)
    missing.absent(one.family, [MUTEX.free(one)], 0)
    assert not missing._missed
    missing.absent(other.family, [MUTEX.take(other)], 0)
    missing.sent(other.family, 0)  # an extension got the vote after all
    missing.absent(other.family, [MUTEX.free(other)], 0)
    assert len(missing._missed[0]) == 1
    assert not missing._unasked


def test_only_releases(missing):
    """Requests that free nothing are not repeated."""
    missing.missed([MUTEX.take(claim())], 0)
    missing.missed([MUTEX.prolong(claim(), 10)], 0)
    assert not missing._missed


def test_an_error_is_no_answer(own_redis):
    """A node that answers a release with an error has not freed anything: it is told again until it has."""
    server = own_redis()
    held = claim()
    with server.client() as client:
        client.set("redlock:{stock}", held.token + b" {}", px=60_000)
        client.execute_command("ACL SETUSER", "default", "-eval", "-evalsha")
        Arrears([node_for(server.url, 0.5)]).missed([MUTEX.free(held)], 0)
        poll(lambda: refused(client), timeout=5, what="a release that is answered with an error")
        assert client.exists("redlock:{stock}")
        client.execute_command("ACL SETUSER", "default", "+eval", "+evalsha")
        poll(lambda: not client.exists("redlock:{stock}"), timeout=5, what="the release, once more")
