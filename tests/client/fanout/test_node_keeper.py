"""The keeper of a node: connects in the background, and repeats releases for a limited time, in a limited number."""

import pytest

from django_redlock.client.fanout import node_keeper
from django_redlock.client.fanout.node_keeper import MAX_RELEASES, NodeKeeper
from django_redlock.client.nodes.servers import NodeOptions
from django_redlock.client.urls import node_for
from django_redlock.core.keys import keys_for
from django_redlock.core.primitives.base import MUTEX
from django_redlock.core.values import Claim, new_token
from testproject.redis_server import RedisServer
from tests.support.service import poll

KEYS = keys_for(b"redlock", b"stock")


def new_keeper(url, timeout=10.0):
    return NodeKeeper(node_for(url, NodeOptions(timeout)), timeout, b"", lambda: True)


@pytest.fixture
def hopeless(monkeypatch):
    """The keeper of a node that does not listen. Releases are kept for a short time."""
    monkeypatch.setattr(node_keeper, "KEEP_SECONDS", 2)
    monkeypatch.setattr(node_keeper, "DOWN_SECONDS", 2.5)  # the thread sends nothing while the test looks
    return new_keeper(RedisServer().url, 0.1)


def claim():
    return Claim("stock", (KEYS,), new_token(), b"{}", 10.0)


def kept(keeper):
    return [run for _, run in keeper._releases]


def test_kept_for_a_limited_time_and_number(hopeless):
    """Of many releases the last are kept for a limited time, and the thread ends with them."""
    runs = [MUTEX.release_request(claim()) for _ in range(MAX_RELEASES + 5)]
    for run in runs:
        hopeless.repeat([run])
    assert kept(hopeless) == runs[5:]
    poll(lambda: not hopeless._releases and hopeless._thread is None, timeout=60, what="the end of the repetition")


def test_a_refused_release_is_repeated(own_redis):
    server = own_redis()
    held = claim()
    with server.client() as client:
        client.set("redlock:{stock}", held.token + b" {}", px=60_000)
        client.execute_command("ACL SETUSER", "default", "-eval", "-evalsha")
        new_keeper(server.url, 0.5).repeat([MUTEX.release_request(held)])
        poll(
            lambda: sum(row["rejected_calls"] for row in client.info("commandstats").values()),
            timeout=20,
            what="a release that is answered with an error",
        )
        assert client.exists("redlock:{stock}")
        client.execute_command("ACL SETUSER", "default", "+eval", "+evalsha")
        poll(lambda: not client.exists("redlock:{stock}"), timeout=20, what="the release, once more")
