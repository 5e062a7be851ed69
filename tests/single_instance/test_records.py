"""The scripts of a task's record on a real Redis, and the same scripts in memory."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.core.flow.drivers import drive
from django_redlock.core.flow.requests import Fault
from django_redlock.core.values import Lease, Wait, new_token
from django_redlock.single_instance.call import MODES
from django_redlock.single_instance.records import BODY, cancel, keep_message, remember_ended, rename
from tests.scripts.strict import be_strict
from tests.single_instance.player import Player
from tests.support.service import poll


def plainly(answer):
    """Return "refused" for either kind of refusal."""
    return "refused" if answer in ("queued", "running") else answer


moves = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "start", "start", "extend", "end", "end", "cancel", "redeliver", "lose"]),
        st.sampled_from("ab"),
        st.sampled_from(["1", "2", "any"]),
        st.fixed_dictionaries(
            {name: st.booleans() for name in ("own", "replace", "ended", "again")} | {"run": st.sampled_from([0, 1])}
        ),
    ),
    min_size=1,
    max_size=12,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=100, deadline=None
)
@given(moves=moves, mode=st.sampled_from(sorted(MODES)), limit=st.sampled_from([1, 2]))
def test_memory_and_scripts_give_the_same_replies(redis_store, moves, mode, limit):
    """The in-memory store gives the same replies as the scripts, for random moves."""
    here = Player(LocMemBackend("twins").task_store(), mode, limit)
    there = Player(redis_store, mode, limit)
    for move, task, sending, options in moves:
        options["replace"] &= limit == 1
        answers = [plainly(player.play(move, task, sending, **options)) for player in (here, there)]
        assert answers[0] == answers[1], move


def test_a_record_with_a_provisional_id_is_renamed(store):
    """The id "?" stands for a queued record whose id begins with it, unless the new id has a record."""
    player = Player(store, "until_and_while_executing")
    named = player.call("a", "a-1")
    assert not drive(rename(named, "?"), store.perform)
    player.play("submit", "?0", "1")
    assert drive(rename(named, "?"), store.perform)
    assert not drive(rename(player.call("b", "b-1"), "?"), store.perform)
    player.play("start", "a", "1")
    player.play("submit", "?1", "1")
    assert not drive(rename(named, "?"), store.perform)
    assert drive(rename(player.call("b", "b-1"), "?"), store.perform)
    assert drive(cancel(player.call("b", "?1-1")), store.perform)


@pytest.mark.parametrize(
    ("move", "options"),
    [("end", {"again": True}), ("redeliver", {"again": True})]
    + [(move, {}) for move in ("extend", "end", "cancel", "redeliver", "lose")],
)
def test_a_full_server_lets_bodies_go_on_and_end(redis_store, redis_server, move, options):
    answers = []
    for memory in ("0", "1"):
        player = Player(redis_store, "until_and_while_executing")
        for before in ("submit", "start"):
            player.play(before, "a", "1")
        player.play("submit", "a", "2", own=True)
        with redis_server.client() as client:
            client.config_set("maxmemory", memory)
            try:
                answer = player.play(move, "a", "2", **options)
            finally:
                client.config_set("maxmemory", "0")
            kept = [record.split()[0] for record in client.hvals(player.keys.lock)]
            answers.append((answer, kept, 0 < client.pttl(player.keys.lock) <= 600_000))
    assert answers[0] == answers[1]


def test_a_start_that_was_interrupted_is_taken_back(store):
    """A start whose caller was interrupted is released, whichever attempt was granted."""
    player = Player(store, "until_executed")
    claim = player.waiting_claim("a")
    assert isinstance(drive(store.algorithm.acquire(BODY, claim, 0.0), store.perform), Lease)
    assert drive(store.algorithm.cancel(BODY, claim), store.perform)
    claim = claim._replace(token=new_token())
    assert isinstance(drive(store.algorithm.acquire(BODY, claim, 0.0), store.perform), Lease)


def test_a_body_that_waits_is_listed_once(redis_store, redis_server):
    player = Player(redis_store, "while_executing")
    player.play("start", "a", "1")
    claim = player.waiting_claim("b")
    with redis_server.client() as client:
        for attempt in (claim, claim.next_attempt(0.0)):
            redis_store.perform(BODY.acquire_request(attempt, Wait.REQUEUE))
        assert client.zcard(player.keys.waiters) == 1
        redis_store.perform(BODY.dequeue_request(claim))
        assert client.zcard(player.keys.waiters) == 0


# A body begins; its message is "a1", and "a2" is its retry.
BEGUN = "submit a1: granted, start a1: granted"
RETRIED = f"{BEGUN}, submit a2 own: granted"
SAME_ID = f"{BEGUN}, submit a2: granted, extend a1: 1, start a2 run=1: running, end a1: 1, start a2 run=1: granted"
LATE_SUBMIT = "start a1: granted, submit a1: granted, cancel a1: 0, end a1: 1"
STORIES = [
    # A request that is sent twice gets the same reply; what has ended is no longer there.
    ("until_executed", 1, "submit a1: granted, submit a1: granted, start a1: granted, start a1: granted"),
    ("until_executed", 1, f"{BEGUN}, extend a1: 1, extend a1: 1, end a1: 1, end a1: 0"),
    # From submit to end another task is refused, and the owner's message and retry are granted.
    ("until_executed", 1, "submit a1: granted, submit b1: queued, start b1: queued, start a1: granted"),
    ("until_executed", 1, f"{BEGUN}, start a1 run=1: running, submit a2 own: granted, end a1: 1, submit b1: queued"),
    ("until_executed", 1, f"{RETRIED}, end a1: 1, start a1 run=2: ended, start a2 run=3: granted"),
    ("until_executed", 1, f"{RETRIED}, end a1: 1, start a2 run=3: granted, end a2 run=3: 1"),
    ("until_executed", 1, f"{BEGUN}, end a1: 1, submit b1: granted"),
    # A running task that has sent a retry counts as queued and as running.
    ("until_and_while_executing", 1, f"{RETRIED}, submit b1: running, end a1: 1, submit b1: queued"),
    # A submit with the id of a body that runs leaves it its lease.
    ("until_and_while_executing", 1, SAME_ID),
    ("until_executing", 1, SAME_ID),
    ("until_executed", 2, SAME_ID),
    # A dead process leaves a queued record only where tasks are queued: elsewhere nothing would remove it.
    ("while_executing", 1, "start a1: granted, redeliver a1: 1, cancel a1: 0"),
    ("until_executed", 1, "start a1: granted, redeliver a1: 1, cancel a1: 1"),
    # A call whose sending failed gives way to the call that it has replaced, also if its submit was repeated.
    *(
        ("until_executed", 1, f"submit a1: granted, {submits}, start a1: replaced, cancel b1: 1, start a1: granted")
        for submits in ("submit b1 replace: granted", "submit b1 replace: granted, submit b1 replace: granted")
    ),
    # A queued call that is cancelled gives up its period; one that runs or has run keeps it.
    ("until_expired", 1, "submit a1: granted, cancel a1: 1, cancel aany: 0, submit b1 replace: granted"),
    ("until_expired", 1, f"{BEGUN}, cancel a1: 0, cancel aany: 0, submit b1 replace: running, submit b1: running"),
    ("until_expired", 1, f"{BEGUN}, end a1: 1, cancel a1: 0, cancel aany: 0, submit b1 replace: queued"),
    # Cancelling the retry of a running body removes the retry only, and the lock is free after the body.
    ("until_expired", 1, f"{RETRIED}, cancel a2: 1, extend a1: 1, end a1: 1, submit b1: granted"),
    # A submit that reaches the store after the start of its own delivery queues nothing after the body.
    ("until_executed", 1, f"{LATE_SUBMIT}, submit b1: granted"),
    ("until_expired", 1, f"{LATE_SUBMIT}, submit b1: queued"),
]


@pytest.mark.parametrize(("mode", "limit", "story"), STORIES)
def test_stories(store, mode, limit, story):
    Player(store, mode, limit).tell(story)


def test_a_retry_is_not_lost_with_the_lease_of_the_run_that_sent_it(store):
    player = Player(store, "until_executed", lease=0.05)
    player.play("submit", "a", "1")
    player.play("start", "a", "1")
    assert player.play("submit", "a", "2", own=True) == "granted"
    others = []
    poll(
        lambda: others.append(player.play("submit", "b", "1")) or player.play("start", "a", "2", run=1) == "granted",
        timeout=20,
        what="the end of the lease",
    )
    assert "granted" not in others
    assert player.play("end", "a", "1") == 0


def test_a_replaced_task_is_known_as_replaced_when_it_comes(store):
    """A message of a replaced task is recognised for as long as its record would have lasted."""
    player = Player(store, "until_executed", remember=0.05)
    player.play("submit", "a", "1")
    assert player.play("submit", "b", "1", replace=True) == "granted"
    player.play("start", "b", "1")
    player.play("end", "b", "1")
    poll(lambda: player.play("start", "b", "1", run=1) == "granted", timeout=20, what="b to be forgotten")
    player.play("end", "b", "1", run=1)
    assert player.play("start", "a", "1") == "replaced"


@pytest.mark.parametrize("submitted", [True, False])
def test_a_period_outlives_lease_and_end(store, submitted):
    """until_expired counts from the submit, or from a start without a submit, and outlives lease and end."""
    player = Player(store, "until_expired", lease=1)
    if submitted:
        player.play("submit", "a", "1")
    player.play("start", "a", "1")
    assert player.play("start", "a", "1") == "granted"  # asked again: the same answer, and nothing is lost
    poll(lambda: player.play("submit", "b", "1") == "queued", timeout=20, what="the end of the lease")
    player.lease = 60.0
    assert player.play("start", "a", "1", run=1) == "granted"
    assert player.play("end", "a", "1", run=1) == 1
    assert player.play("submit", "b", "1") == "queued"


@pytest.fixture
def players(store):
    """A task with ``until_executed`` and a task with ``while_executing``, which have the same key."""
    queued, started = Player(store, "until_executed"), Player(store, "while_executing")
    started.name, started.keys = queued.name, queued.keys
    return queued, started


def test_a_queued_call_does_not_start_beside_the_body_of_another_task(players):
    """A call that is queued does not start while another task with the same key runs that ignores queued calls."""
    queued, started = players
    assert queued.play("submit", "a", "1") == "granted"
    assert started.play("start", "b", "1") == "granted"
    assert queued.play("start", "a", "1") == "running"
    assert started.play("end", "b", "1") == 1
    assert queued.play("start", "a", "1") == "granted"


def test_a_queued_call_passes_other_queued_calls(players):
    """A call that is queued starts although another call is queued, too: it has its place among them."""
    queued, _ = players
    assert queued.play("submit", "a", "1") == "granted"
    other = Player(queued.store, "until_executing", limit=2)
    other.name, other.keys = queued.name, queued.keys
    assert other.play("submit", "b", "1") == "granted"
    assert queued.play("start", "a", "1") == "granted"


def keep(player, task, message):
    return drive(keep_message(player.call(task, f"{task}-1"), message), player.store.perform)


def test_messages_are_sent_in_order_and_not_after_a_start(store):
    player = Player(store, "while_executing")
    assert not keep(player, "b", b"B")
    player.play("start", "a", "1")
    assert [keep(player, task, task.upper().encode()) for task in "bcdb"] == [True] * 4
    assert player.play("end", "a", "1") == [1, b"B"]
    assert player.play("start", "c", "1") == "granted"
    assert player.play("end", "c", "1") == [1, b"D"]
    player.play("start", "e", "1")
    assert player.play("end", "e", "1") == 1


def test_replaced_calls_leave_nothing(store, redis_server):
    """Calls that are put off and replaced during one body leave no ids in the list of the order."""
    player = Player(store, "until_and_while_executing")
    player.play("submit", "a", "1")
    player.play("start", "a", "1")
    for task in "bcdef":
        assert player.play("submit", task, "1", replace=True) == "granted"
        assert keep(player, task, task.upper().encode())
    with redis_server.client() as client:
        assert client.llen(player.keys.lock + b":put_off:order") <= 1
    assert player.play("end", "a", "1") == [1, b"F"]


MOVES = ("submit", "submit", "start", "start", "end", "cancel", "extend")


@pytest.mark.parametrize("mode", ["until_executed", "until_and_while_executing", "while_executing"])
def test_scripts_use_the_keys_of_their_requests_only(redis_store, mode, monkeypatch):
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
