"""Releases that a node has missed are kept for a limited time, in a limited number."""

import pytest

from django_redlock.client.fanout import missed_releases
from django_redlock.client.fanout.missed_releases import MAX_RELEASES, MissedReleases
from django_redlock.client.urls import node_for
from django_redlock.core.keys import keys_for
from django_redlock.core.primitives.base import MUTEX
from django_redlock.core.values import Claim, new_token
from testproject.redis_server import RedisServer
from tests.support.service import poll

KEYS = keys_for(b"redlock", b"stock")


@pytest.fixture
def nobody():
    """A server that is not started."""
    return RedisServer()


@pytest.fixture
def missing(monkeypatch, nobody):
    """The missed releases of a node that does not listen, kept for a short time."""
    monkeypatch.setattr(missed_releases, "KEEP_SECONDS", 3)
    monkeypatch.setattr(missed_releases, "DOWN_SECONDS", 5)  # the thread sends nothing while the test looks
    return MissedReleases([node_for(nobody.url, 0.1)])


def claim():
    return Claim("stock", (KEYS,), new_token(), b"{}", 10.0)


def refused(client):
    """Return how many scripts the server has refused."""
    return sum(row["rejected_calls"] for row in client.info("commandstats").values())


def test_kept_for_a_limited_time_and_number(missing):
    """Of many releases the last are kept for a limited time, and the retrying thread ends with them."""
    runs = [MUTEX.release_request(claim()) for _ in range(MAX_RELEASES + 5)]
    for run in runs:
        missing.add([run], 0)
    assert [run for _, run in missing._missed[0]] == runs[5:]
    poll(lambda: not missing._missed, timeout=60, what="nothing remembered")


def test_a_node_that_was_sent_no_request(missing):
    """A node that was sent neither the acquire nor the release is sent no release later."""
    one, other = claim(), claim()
    missing.not_sent(one.acquisition_id, [MUTEX.acquire_request(one)], 0)
    missing.not_sent(one.acquisition_id, [MUTEX.release_request(one)], 0)
    assert not missing._missed
    missing.not_sent(other.acquisition_id, [MUTEX.acquire_request(other)], 0)
    missing.sent(other.acquisition_id, 0)  # an extension got the vote after all
    missing.not_sent(other.acquisition_id, [MUTEX.release_request(other)], 0)
    assert len(missing._missed[0]) == 1
    assert not missing._never_sent


def test_a_waiter_that_could_not_leave(missing):
    """A node that got an acquire, and neither the cancellation nor the release, is sent the release later."""
    one, release = claim(), MUTEX.release_request
    missing.sent(one.acquisition_id, 0)
    missing.not_sent(one.acquisition_id, [MUTEX.dequeue_request(one)], 0)
    missing.not_sent(one.acquisition_id, [release(one)], 0)
    missing.add([MUTEX.dequeue_request(one), release(one)], 0)  # a cancellation of many waiters in one pipeline
    assert [run for _, run in missing._missed[0]] == [release(one)] * 2


def test_only_releases(missing):
    """Only releases are repeated."""
    missing.add([MUTEX.acquire_request(claim())], 0)
    missing.add([MUTEX.extend_request(claim(), 10)], 0)
    assert not missing._missed


def test_a_refused_release_is_repeated(own_redis):
    """A release that a node refuses with an error is repeated until it succeeds."""
    server = own_redis()
    held = claim()
    with server.client() as client:
        client.set("redlock:{stock}", held.token + b" {}", px=60_000)
        client.execute_command("ACL SETUSER", "default", "-eval", "-evalsha")
        MissedReleases([node_for(server.url, 0.5)]).add([MUTEX.release_request(held)], 0)
        poll(lambda: refused(client), timeout=20, what="a release that is answered with an error")
        assert client.exists("redlock:{stock}")
        client.execute_command("ACL SETUSER", "default", "+eval", "+evalsha")
        poll(lambda: not client.exists("redlock:{stock}"), timeout=20, what="the release, once more")


def test_error_of_a_credential_provider(monkeypatch, redis_server):
    """A connect that raises an error of another library is retried, and later releases are delivered, too."""
    monkeypatch.setattr(missed_releases, "DOWN_SECONDS", 0.05)
    node = node_for(redis_server.url, 5)
    pool, errors = node.find_pool(None), [RuntimeError("no token from the provider")]
    real_connect = pool.connect

    def connect():
        if errors:
            raise errors.pop()
        return real_connect()

    monkeypatch.setattr(pool, "connect", connect)
    missing = MissedReleases([node])
    for each in (claim(), claim()):
        missing.add([MUTEX.release_request(each)], 0)
        poll(lambda: not missing._missed, timeout=60, what="nothing remembered")


def test_newest_releases_are_kept(monkeypatch, missing):
    """When more releases come while some are retried, the oldest are dropped."""
    runs = [MUTEX.release_request(claim()) for _ in range(MAX_RELEASES + 5)]
    asked = []

    def delivered(node, calls):
        if not asked:
            missing.add(runs[5:], 0)
        asked.append(calls)
        return len(asked) > 1

    monkeypatch.setattr(missed_releases, "KEEP_SECONDS", 60)
    monkeypatch.setattr(missed_releases, "DOWN_SECONDS", 0.05)
    monkeypatch.setattr(missing, "_delivered", delivered)
    missing.add(runs[:5], 0)
    poll(lambda: not missing._missed, timeout=60, what="nothing remembered")
    assert asked[1] == runs[5:]
