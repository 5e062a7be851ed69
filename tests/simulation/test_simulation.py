"""The simulator finds known mistakes. `make simulate` plays seeds on the unchanged code."""

import gc
import random
from typing import Any

import pytest

from django_redlock.core import values
from django_redlock.core.algorithms import redlock, single_node
from django_redlock.core.algorithms.single_node import SingleNode
from django_redlock.core.background.work import Background, Extension
from django_redlock.core.flow.requests import Batch, EvalScript, Fault, Flow, Sleep
from django_redlock.core.flow.scripts import Script, script
from django_redlock.core.lock_info import LockInfo
from django_redlock.core.locks.hold import Hold
from django_redlock.core.primitives.base import MUTEX, SEMAPHORE, Primitive
from django_redlock.core.primitives.fair import WRITE
from django_redlock.core.primitives.multi import MULTILOCK, STRIPED
from django_redlock.core.values import Claim, Lease
from django_redlock.errors import LockError

from .performer import Performer, Then
from .requests import Request
from .roles import Candidate, HandingThread, PeriodicThread
from .scenario import Setting, Violation, play

SINGLE = Setting("single")


def found(setting: Setting, seeds: int) -> str:
    """Returns the violation of the first seed that has one. Fails if no seed has one."""
    for seed in range(seeds):
        try:
            play(seed, setting)
        except Violation as violation:
            return str(violation).partition("\n")[0]
    pytest.fail(f"{seeds} seeds found nothing")


@pytest.mark.parametrize("algorithm", ["quorum", "single", "replicas"])
def test_it_finds_what_quarantine_prevents(algorithm: str) -> None:
    """Without quarantine, a server that lost its data grants a held lock again."""
    assert "both hold" in found(Setting(algorithm, quarantine=False), 400)


@pytest.mark.parametrize("algorithm", ["quorum", "single"])
def test_it_finds_clocks_that_run_apart(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an allowance for drift, a lease on a slow client's clock outlasts the lease on fast servers."""
    monkeypatch.setattr(values, "DRIFT", 0.0)
    monkeypatch.setattr(values, "PRECISION", 0.0)
    assert "both hold" in found(Setting(algorithm, calm=True), 1000)


@pytest.mark.parametrize("limit", [2, 3])
def test_it_finds_a_plain_majority_for_permits(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A majority for each permit grants one too many: three majorities of five need nine votes, and there are ten."""
    monkeypatch.setattr(redlock, "votes_needed", lambda nodes, *_: nodes // 2 + 1)
    assert "all hold" in found(Setting(primitive=SEMAPHORE._replace(limit=limit), apart=80), 200)


def test_it_finds_half_of_the_votes_for_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With less than a majority for each reader, a writer is admitted beside a reader."""
    monkeypatch.setattr(redlock, "votes_needed", lambda nodes, *_: nodes // 2)
    assert "both hold" in found(Setting(primitive=WRITE), 100)


def test_it_finds_votes_for_different_stripes(monkeypatch: pytest.MonkeyPatch) -> None:
    """If votes for different stripes are counted together, a minority can grant a stripe."""
    monkeypatch.setattr(redlock, "split_votes", lambda grants: ([lease for _, lease in grants], []))
    said = found(Setting(primitive=STRIPED), 100)
    assert "both hold" in said or "is not above" in said  # the second to hear of it may hear too late to believe it


def rewritten(name: str, line: str, wrong: str) -> Script:
    """Returns a script with a deliberate mistake."""
    right = script(name)
    assert line.encode() in right.source
    return Script.made(name, right.source.replace(line.encode(), wrong.encode()))


@pytest.mark.parametrize("algorithm", ["quorum", "single", "replicas"])
def test_it_finds_a_multilock_of_which_some_names_are_taken(algorithm: str) -> None:
    """If a multilock is granted when only its last name is free, it takes other names from their holders."""
    another = "if held[i] and string.sub(held[i], 1, #token) ~= token then"
    wrong = rewritten("mutex_acquire", another, another.replace("if ", "if i + step > last and "))
    said = found(Setting(algorithm, MULTILOCK._replace(acquire_script=wrong)), 50)
    assert "both hold" in said or "is not above" in said  # the loser may get its grant after the lease


def test_it_finds_a_request_that_must_not_come_twice() -> None:
    """A repeated request that is refused by its own first grant leaves the lock behind."""
    another = "held[i] and string.sub(held[i], 1, #token) ~= token"
    wrong = rewritten("mutex_acquire", another, "held[i]")
    assert "left over" in found(Setting("single", MUTEX._replace(acquire_script=wrong), calm=True), 100)


class WithoutNX(Performer):
    """Sends SET without NX."""

    set_script = Performer.set_script.replace(b", 'NX'", b"")


def test_it_finds_a_set_that_overwrites() -> None:
    assert "both hold" in found(Setting("unguarded", performer=WithoutNX), 50)


def test_it_finds_a_repetition_with_another_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script with another token than the SET before it is refused by the grant of the SET."""

    def renamed(self: Primitive, claim: Any, *more: Any) -> EvalScript:
        return acquire_request(self, claim.next_attempt(0.0), *more)

    acquire_request = Primitive.acquire_request
    monkeypatch.setattr(Primitive, "acquire_request", renamed)
    assert "left over" in found(Setting("unguarded", calm=True), 100)


@pytest.mark.parametrize("algorithm", ["quorum", "single", "replicas"])
def test_it_finds_leases_longer_than_they_may_be(algorithm: str) -> None:
    """A lease that is renewed for too long is still held when all locks must be free."""
    wrong = rewritten(
        "mutex_extend",
        "redis.call('PTTL', lock), ttl) or ttl",
        "redis.call('PTTL', lock), ttl) or 2 * ttl",
    )
    assert "is not free" in found(Setting(algorithm, MUTEX._replace(extend_script=wrong)), 500)


def test_it_finds_a_lock_that_is_said_to_be_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder with a majority still holds the lock while some of these nodes don't reply."""
    merged = redlock.merge_views
    monkeypatch.setattr(redlock, "merge_views", lambda held, _: merged(held, 3))
    assert "said to be free" in found(Setting(onlookers=True), 100)


@pytest.mark.parametrize("primitive", [MUTEX, WRITE])
def test_it_finds_a_lock_that_is_said_to_be_anothers(primitive: Primitive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vote of a single node does not make a holder, because it may be a leftover."""
    merged = redlock.merge_views
    monkeypatch.setattr(redlock, "merge_views", lambda held, votes: merged(held[:1], min(1, votes)))
    assert "said to be another's" in found(Setting(primitive=primitive, onlookers=True), 200)


def test_it_finds_an_owner_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A former holder does not own a lock that another handle holds."""
    monkeypatch.setattr(LockInfo, "matches", lambda *_: True)
    assert "is said to own" in found(SINGLE._replace(onlookers=True), 200)


class Dropping(Performer):
    """Skips one kind of requests to several slots, and reports success."""

    dropped: str

    def perform(self, request: Any, then: Then) -> None:
        if isinstance(request, Batch) and request.calls[0].script.name == self.dropped:
            self.world.after(0.001, lambda: then([1] * len(request.calls)))
        else:
            super().perform(request, then)


@pytest.mark.parametrize(("dropped", "said"), [("mutex_release", "left over"), ("fence_set", "is not above")])
def test_it_finds_half_a_multilock(dropped: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cluster, a refusal in one slot releases the grants in other slots, and all slots get the fencing token."""
    monkeypatch.setattr(Dropping, "dropped", dropped, raising=False)
    calm = dropped == "mutex_release"
    assert said in found(Setting("cluster", MULTILOCK, calm=calm, performer=Dropping), 100)


class BreaksOff(Performer):
    """Fails while a lease is being extended."""

    def perform(self, request: Any, then: Then) -> None:
        if isinstance(request, Batch):  # renewals
            raise Violation("broken off")
        super().perform(request, then)


SETTINGS = (
    Setting(),
    SINGLE,
    SINGLE._replace(primitive=STRIPED),
    *(SINGLE._replace(threads=threads) for threads in (HandingThread, Candidate, PeriodicThread)),
)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_play_depends_on_its_seed_only(setting: Setting) -> None:
    """A timeline does not depend on an aborted earlier run, on the process' random numbers, or on garbage."""

    def played() -> list[Any]:
        return [play(seed, setting).log for seed in range(4)]

    before = played()
    assert found(SINGLE._replace(performer=BreaksOff), 8) == "broken off"
    random.seed(1)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        assert played() == before
    finally:
        gc.set_threshold(*threshold)


def test_it_finds_a_hand_over_that_is_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a hand-over with an unknown result, the next waiter holds nothing."""
    hand_over = SingleNode.hand_over

    def trusting(self: SingleNode, primitive: Primitive, claim: Claim, following: Claim) -> Flow[Lease | None]:
        try:
            return (yield from hand_over(self, primitive, claim, following))
        except LockError:
            return Lease.granted(following, self.clock())

    monkeypatch.setattr(SingleNode, "hand_over", trusting)
    said = found(SINGLE, 400)
    assert "both hold" in said or "is not above" in said


class Deaf(Performer):
    """Loses the replies to extensions. Extensions from the background do not even reach the servers."""

    _background = True

    def ask(self, node: int, runs: Any, family: bytes, then: Then, *rest: Any) -> None:
        def lost(reply: Any) -> None:
            del reply
            then(Fault(TimeoutError("no reply in time")))

        name = runs[0].script.name
        self._background = self._background and not name.endswith("mutex_acquire")
        if name == "mutex_extend" and self._background:
            self.world.after(self.timeout, lost, None)
        else:
            super().ask(node, runs, family, lost if name == "mutex_extend" else then, *rest)


def test_it_finds_a_shorter_lease_that_counts_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an unanswered request for a shorter lease, the holder must not rely on the longer lease."""
    setting = SINGLE._replace(performer=Deaf)
    assert all(play(seed, setting).grants for seed in range(50))

    def rely_on_the_longer(hold: Any, ttl: float) -> Any:
        hold._extension = Extension(hold.lease, ttl)
        return hold._extension

    monkeypatch.setattr(Hold, "_begin_extension", rely_on_the_longer)
    assert "both hold" in found(setting, 400)


def test_it_finds_what_nobody_frees_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant to an interrupted caller is released in the background."""
    monkeypatch.setattr(Background, "release_later", lambda *_, **__: None)
    assert "left over" in found(SINGLE._replace(algorithm="quorum", calm=True), 200)


def test_it_finds_a_number_that_a_majority_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fencing token counts after it is written back: a majority with slower clocks gives a smaller one."""

    def remember(*_: Any) -> Any:
        yield Sleep(0.0)
        return True

    monkeypatch.setattr(redlock.Redlock, "_store_fencing_token", remember)
    assert "is not above" in found(Setting(), 100)


class Credulous(Performer):
    """Treats every write as acknowledged."""

    def count(self, count: int) -> int:
        return count + 99


def test_it_finds_writes_that_no_replica_has() -> None:
    """A grant that counts before replicas have it is repeated after a failover, or on both sides of a split."""
    assert "both hold" in found(Setting("replicas", performer=Credulous), 1000)


class ToGrantersOnly(Performer):
    """Sends a release only to the nodes that are known to have granted."""

    def ask(self, node: int, runs: Any, family: bytes, then: Then, *rest: Any) -> None:
        known = self.__dict__.setdefault("_granted", set())
        if family and runs[0].script.name == "mutex_release" and (family, node) not in known:
            self.world.after(0.001, lambda: then([0]))
            return

        def note(reply: Any) -> None:
            if isinstance(reply, list) and (isinstance(reply[0], int) or (reply[0] and reply[0][0] == 1)):
                known.add((family, node))
            then(reply)

        super().ask(node, runs, family, note, *rest)


def test_it_finds_late_grants_without_a_release() -> None:
    """A release that is sent only to the nodes that granted leaves late grants behind."""
    assert "left over" in found(Setting(calm=True, performer=ToGrantersOnly), 300)


class Repeating(Performer):
    """Treats a timeout, after which a request is undone, as a closed connection, after which it may be repeated."""

    def send(self, request: Request) -> None:
        then, again = request.then, request.again()

        def timed_out(reply: Any) -> None:
            if isinstance(reply, Fault):
                again(reply._replace(stale=True))
            else:
                then(reply)

        request.then = timed_out
        super().send(request)


def test_it_finds_a_token_that_is_used_again() -> None:
    """A request that reuses the token of an undone request loses its grant to the undo."""
    assert "both hold" in found(Setting("single", slow=0.3, performer=Repeating), 600)


def test_it_finds_a_lease_reckoned_from_its_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant to a blocked waiter may have been in its socket for long, so its arrival must not start the lease."""
    monkeypatch.setattr(single_node, "_granted_after", lambda *times: times[-1])
    assert "seed" in found(Setting("single", slow=0.3), 2000)
