"""The scripts of a record, alone on a real Redis, and their twins in memory."""

from __future__ import annotations

import itertools
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.celery.memory import MemoryStore
from django_redlock.celery.modes import MODES
from django_redlock.celery.records import Running, Ticket, bury, cancel, process, submit
from django_redlock.core.drivers import drive
from django_redlock.core.keys import keys_for
from django_redlock.core.lease import Claim, Lease
from django_redlock.core.owner import describe_owner

numbers = itertools.count()


class Player:
    """Moves records by hand on one store, and writes down what was answered."""

    def __init__(self, store, mode, limit):
        self.store, self.mode, self.limit = store, MODES[mode], limit
        self.name = f"played:{next(numbers)}"
        self.keys = keys_for(b"redlock", self.name.encode())

    def ticket(self, task, sending):
        return Ticket(self.name, self.keys, "t", task, sending, self.mode, self.limit, 60.0, 600.0, 60.0)

    def claim(self, task, run):
        return Claim(self.name, self.keys, f"token-{task}-{run}".encode(), describe_owner({"task_id": task}), 60.0)

    def play(self, move, task, sending, *, own=False, replace=False, run=0, ended=True, again=False):
        ticket, store = self.ticket(task, f"{task}-{sending}"), self.store
        running = Running.of(ticket)
        if move == "submit":
            return self.outcome(drive(submit(ticket, own, replace, store.clock), store.perform))
        if move == "start":
            return self.outcome(drive(store.rule.acquire(running, self.claim(task, run), 0.0), store.perform))
        if move == "extend":
            return store.perform(running.prolong(self.claim(task, run), 60.0))
        if move == "end":
            running.ended, running.keep = ended and not again, 600.0 if again else 0.0
            return store.perform(running.free(self.claim(task, run)))
        if move == "cancel":
            return drive(cancel(ticket, sending != "any"), store.perform)
        return drive(bury(ticket, 0 if again else os.getpid()), store.perform)

    @staticmethod
    def outcome(outcome):
        return "granted" if isinstance(outcome, Lease) else json.loads(outcome.holder)["state"]


def plainly(answer):
    """An answer, whichever of several rivals it names."""
    return "refused" if answer in ("queued", "running") else answer


@pytest.fixture
def redis_store(redis_server):
    return RedisBackend(redis_server.unix_url)


moves = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "start", "start", "extend", "end", "end", "cancel", "bury"]),
        st.sampled_from("ab"),
        st.sampled_from(["1", "2", "any"]),
        st.fixed_dictionaries(
            {name: st.booleans() for name in ("own", "replace", "ended", "again")} | {"run": st.sampled_from([0, 1])}
        ),
    ),
    min_size=1,
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(moves=moves, mode=st.sampled_from(sorted(MODES)), limit=st.sampled_from([1, 2]))
def test_the_twins_in_memory_answer_as_the_scripts_do(redis_store, moves, mode, limit):
    """Whatever is played on both, every answer is the same."""
    here = Player(MemoryStore(LocMemBackend("twins")), mode, limit)
    there = Player(redis_store, mode, limit)
    for move, task, sending, options in moves:
        options["replace"] &= limit == 1
        answers = [plainly(player.play(move, task, sending, **options)) for player in (here, there)]
        assert answers[0] == answers[1], move


@pytest.mark.parametrize("move", ["submit", "start", "extend", "end"])
def test_scripts_are_idempotent(redis_store, move):
    """A request whose reply was lost may be sent again: same answer, same record."""
    player = Player(redis_store, "until_executed", 1)
    for before in {"submit": [], "start": ["submit"]}.get(move, ["submit", "start"]):
        player.play(before, "a", "1")
    first = player.play(move, "a", "1")
    again = player.play(move, "a", "1")
    assert again == (first if move != "end" else 0)


def test_rivals_are_refused_and_the_owner_passes(redis_store):
    """From submit to end: another task never, the owner's message and its retry always."""
    player = Player(redis_store, "until_executed", 1)
    assert player.play("submit", "a", "1") == "granted"
    assert player.play("submit", "b", "1") == "queued"
    assert player.play("start", "b", "1") == "queued"
    assert player.play("start", "a", "1") == "granted"
    assert player.play("start", "a", "1", run=1) == "running"
    assert player.play("submit", "a", "2", own=True) == "granted"
    assert player.play("end", "a", "1") == 1
    assert player.play("submit", "b", "1") == "queued"
    assert player.play("start", "a", "1", run=2) == "ended"
    assert player.play("start", "a", "2", run=3) == "granted"
    assert player.play("end", "a", "2", run=3) == 1
    assert player.play("submit", "b", "1") == "granted"


def test_a_foreign_key_is_left_alone(redis_store, redis_server):
    """A plain lock of that name is an error of its own, and stays."""
    from django_redlock.errors import LockError

    player = Player(redis_store, "until_executed", 1)
    with redis_store.lock(player.name), pytest.raises(LockError, match="WRONGTYPE"):
        player.play("submit", "a", "1")


def test_process_names_this_process_in_an_owner():
    """The main process finds the record of its dead child by this part of the owner's JSON."""
    assert process(os.getpid()) in describe_owner({"task_id": "x"})
    assert process(os.getpid() + 1) not in describe_owner({"task_id": "x"})
