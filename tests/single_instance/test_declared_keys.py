"""The scripts for records use the keys of their requests only."""

import random

import pytest

from django_redlock.core.flow.drivers import drive
from django_redlock.core.flow.requests import Fault
from django_redlock.single_instance.records import keep_message, remember_ended, rename
from tests.scripts.strict import be_strict
from tests.single_instance.player import Player

MOVES = ("submit", "submit", "start", "start", "end", "cancel", "extend")


@pytest.mark.parametrize("mode", ["until_executed", "until_and_while_executing", "while_executing"])
def test_keys(redis_store, mode, monkeypatch):
    """Random calls are queued, replaced, put off, started and ended on a server that refuses any other key."""
    be_strict(monkeypatch)
    chance, player, store = random.Random(mode), Player(redis_store, mode), redis_store
    for step in range(300):
        task, replace = chance.choice("abc"), chance.random() < 0.5
        move, again = chance.choice(MOVES), chance.random() < 0.3
        reply = player.play(move, task, str(chance.randrange(3)), replace=replace, again=again)
        assert not isinstance(reply, Fault), (move, reply)
        if step % 10 == 0:
            call = player.call(task, f"{task}-1")
            drive(keep_message(call, b"message"), store.perform)
            drive(rename(call, "d"), store.perform)
            drive(remember_ended(player.call("d", f"d-{step}")), store.perform)
