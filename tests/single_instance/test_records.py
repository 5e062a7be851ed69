"""The scripts of a task's record on a real Redis, and the same scripts in memory."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.core.flow.drivers import drive
from django_redlock.core.values import Lease, Wait, new_token
from django_redlock.single_instance.call import MODES
from django_redlock.single_instance.records import BODY, cancel, keep_message, rename
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
    """On a server that is out of memory running bodies are renewed and end."""
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
    """All attempts of a waiting body have one entry among the waiters."""
    player = Player(redis_store, "while_executing")
    player.play("start", "a", "1")
    claim = player.waiting_claim("b")
    with redis_server.client() as client:
        for attempt in (claim, claim.next_attempt(0.0)):
            redis_store.perform(BODY.acquire_request(attempt, Wait.REQUEUE))
        assert client.zcard(player.keys.waiters) == 1
        redis_store.perform(BODY.dequeue_request(claim))
        assert client.zcard(player.keys.waiters) == 0


@pytest.mark.parametrize("move", ["submit", "start", "extend", "end"])
def test_scripts_are_idempotent(redis_store, move):
    """A script that is sent twice gives the same reply and leaves the same record."""
    player = Player(redis_store, "until_executed", 1)
    for before in {"submit": [], "start": ["submit"]}.get(move, ["submit", "start"]):
        player.play(before, "a", "1")
    first = player.play(move, "a", "1")
    again = player.play(move, "a", "1")
    assert again == (first if move != "end" else 0)


def test_rivals_are_refused_and_the_owner_passes(redis_store):
    """From submit to end another task is refused, and the owner's message and retry are granted."""
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


def test_what_runs_and_has_a_next_sending_counts_as_queued(store):
    """A running task that has sent a retry counts as queued and as running."""
    player = Player(store, "until_and_while_executing")
    player.play("submit", "a", "1")
    player.play("start", "a", "1")
    player.play("submit", "a", "2", own=True)
    assert player.play("submit", "b", "1") == "running"
    player.play("end", "a", "1")
    assert player.play("submit", "b", "1") == "queued"


@pytest.mark.parametrize(
    ("mode", "limit"), [("until_and_while_executing", 1), ("until_executing", 1), ("until_executed", 2)]
)
def test_a_submit_with_the_id_of_a_body_that_runs_leaves_it_its_lease(store, mode, limit):
    player = Player(store, mode, limit)
    player.play("submit", "a", "1")
    player.play("start", "a", "1")
    assert player.play("submit", "a", "2") == "granted"
    assert player.play("extend", "a", "1") == 1
    assert player.play("start", "a", "2", run=1) == "running"
    assert player.play("end", "a", "1") == 1
    assert player.play("start", "a", "2", run=1) == "granted"


@pytest.mark.parametrize(("mode", "left"), [("while_executing", 0), ("until_executed", 1)])
def test_a_dead_process_leaves_a_queued_record_only_where_tasks_are_queued(store, mode, left):
    """Elsewhere nothing would remove it."""
    player = Player(store, mode)
    player.play("start", "a", "1")
    assert player.play("redeliver", "a", "1") == 1
    assert player.play("cancel", "a", "1") == left


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


@pytest.mark.parametrize("submits", [1, 2])
def test_a_replaced_task_runs_if_the_other_is_not_sent(store, submits):
    """A call whose sending failed gives way to the call that it has replaced, also if its submit was repeated."""
    player = Player(store, "until_executed")
    player.play("submit", "a", "1")
    for _ in range(submits):
        assert player.play("submit", "b", "1", replace=True) == "granted"
    assert player.play("start", "a", "1") == "replaced"
    assert player.play("cancel", "b", "1") == 1
    assert player.play("start", "a", "1") == "granted"


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


@pytest.mark.parametrize("end", ["queued", "running", "ended"])
def test_only_a_call_that_has_not_started_gives_up_its_period(store, end):
    """until_expired: a queued call that is cancelled gives up its period; a call that runs or has run keeps it."""
    player = Player(store, "until_expired")
    player.play("submit", "a", "1")
    if end != "queued":
        player.play("start", "a", "1")
    if end == "ended":
        player.play("end", "a", "1")
    removed = 1 if end == "queued" else 0
    assert [player.play("cancel", "a", sending) for sending in ("1", "any")] == [removed, 0]
    answer = {"queued": "granted", "running": "running", "ended": "queued"}[end]  # for a callable that says "replace"
    assert [player.play("submit", "b", "1", replace=each) for each in (True, False)] == [answer] * 2


def test_a_retry_that_is_cancelled_leaves_the_body_that_sent_it(store):
    """until_expired: cancelling the retry of a running body removes the retry only, and the lock is free after it."""
    player = Player(store, "until_expired")
    player.play("submit", "a", "1")
    player.play("start", "a", "1")
    player.play("submit", "a", "2", own=True)
    assert player.play("cancel", "a", "2") == 1
    assert player.play("extend", "a", "1") == 1
    assert player.play("end", "a", "1") == 1
    assert player.play("submit", "b", "1") == "granted"


@pytest.mark.parametrize("mode", ["until_executed", "until_expired"])
def test_a_submit_that_comes_after_the_start_changes_nothing(store, mode):
    """A submit that reaches the store after the start of its own delivery queues nothing after the body."""
    player = Player(store, mode)
    player.play("start", "a", "1")
    assert player.play("submit", "a", "1") == "granted"
    assert player.play("cancel", "a", "1") == 0
    assert player.play("end", "a", "1") == 1
    assert player.play("submit", "b", "1") == ("granted" if mode == "until_executed" else "queued")


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
