"""A call that has ended or was replaced never starts, so it does not wait for its lock."""

import pytest

from django_redlock.core.flow.drivers import drive
from django_redlock.core.flow.requests import Block, BlockThenEval
from django_redlock.core.values import Lease, Wait
from django_redlock.single_instance.records import BODY
from tests.single_instance.player import Player

WAIT = 60.0  # seconds; a call that waits in vain does so until the test fails


on_each_store = pytest.mark.parametrize("store", ["memory", "redis", "replica"], indirect=True)


def wait(player, task, when_it_waits):
    """Return the state for which the call is refused. Call `when_it_waits` before it begins to wait, once."""
    claim = player.waiting_claim(task)
    waits = []

    def perform(request):
        if isinstance(request, Block | BlockThenEval):
            waits.append(request)
            assert len(waits) == 1, "it waits again"
            when_it_waits()
        return player.store.perform(request)

    outcome = drive(player.store.algorithm.acquire(BODY, claim, player.store.clock() + WAIT), perform)
    assert not isinstance(outcome, Lease)
    assert outcome.remaining == 0
    return player.outcome(outcome), len(waits)


def end(player, task):
    assert player.play("end", task, "1") == 1


@on_each_store
@pytest.mark.parametrize("state", ["ended", "replaced"])
def test_an_ended_or_replaced_call_does_not_wait(store, state):
    player = Player(store, "until_and_while_executing")
    player.play("submit", "a", "1")
    if state == "ended":
        player.play("start", "a", "1")
        end(player, "a")
    else:
        player.play("submit", "b", "1", replace=True)
    assert wait(player, "a", lambda: None) == (state, 0)


@on_each_store
def test_a_call_that_is_replaced_while_it_waits(store):
    player = Player(store, "until_and_while_executing")
    player.play("submit", "a", "1")
    player.play("start", "a", "1")
    player.play("submit", "b", "1")

    def replace():
        assert player.play("submit", "c", "1", replace=True) == "granted"
        end(player, "a")

    assert wait(player, "b", replace) == ("replaced", 1)
    assert player.play("start", "c", "1") == "granted"


@on_each_store
def test_a_second_copy_waits_for_the_end_of_the_first(store):
    """A message that is delivered twice, and waits for its own body, is refused when the body has ended."""
    player = Player(store, "while_executing")
    player.play("start", "a", "1")
    assert wait(player, "a", lambda: end(player, "a")) == ("ended", 1)


@pytest.mark.parametrize("again", [Wait.REQUEUE, Wait.LAST_TRY])
def test_the_wake_up_goes_to_the_next_waiter(redis_store, redis_server, again):
    """A call that is woken and never starts is no longer listed, and wakes the next waiter."""
    player = Player(redis_store, "while_executing")
    player.play("start", "a", "1")
    claims = [player.waiting_claim(task) for task in "ab"]
    for claim in claims:
        player.store.perform(BODY.acquire_request(claim, Wait.QUEUE))
    with redis_server.client() as client:
        end(player, "a")
        assert client.lpop(player.keys.wake)  # the second copy of the first call
        player.store.perform(BODY.acquire_request(claims[0].next_attempt(0.0), again))
        assert client.llen(player.keys.wake) == 1
        (waiter,) = client.zrange(player.keys.waiters, 0, -1)
        assert b'"task_id":"b"' in waiter.replace(b" ", b"")
