"""The simulator finds mistakes in hand-offs, elections and periods."""

from typing import Any

import pytest

from django_redlock.core.election.leader import Leader, TermHold
from django_redlock.core.flow.requests import EvalScript, Fault
from django_redlock.core.locks import hand_off
from django_redlock.core.locks.hold import End, Hold
from django_redlock.core.primitives.base import PERIODIC, PeriodicPrimitive, Primitive
from django_redlock.core.primitives.multi import ADOPT
from django_redlock.core.values import Claim, Lease

from .network import Then
from .performer import Performer
from .processes import Process
from .roles import Candidate, HandingThread, PeriodicThread
from .scenario import play
from .test_simulation import SINGLE, found, rewritten

UNTIL = 4.0  # seconds: when requests are no longer repeated, so that the run comes to an end
HAND_OFFS, ELECTIONS, PERIODS = (
    SINGLE._replace(threads=threads) for threads in (HandingThread, Candidate, PeriodicThread)
)


def test_it_finds_a_text_that_is_adopted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that its first adopter has released must not be adopted once more."""
    refused = "if by ~= token and by ~= ARGV[5] then"
    wrong = rewritten("mutex_hand_over", refused, refused.replace("if ", "if held and "))
    monkeypatch.setattr(Process, "adopting", ADOPT._replace(acquire_script=wrong))
    assert "adopted before" in found(HAND_OFFS, 400)


class LateAcquires(Performer):
    """A client after whose releases an earlier acquire request arrives once more."""

    def perform(self, request: Any, then: Then) -> None:
        super().perform(request, then)
        if not isinstance(request, EvalScript) or self.world.now > UNTIL:
            return
        acquires: dict[bytes, list[EvalScript]] = vars(self.world).setdefault("acquires", {})
        earlier = acquires.setdefault(request.keys[0], [])
        if request.script.name.endswith("mutex_acquire"):
            earlier.append(request)
        elif earlier and request.script.name.endswith("release"):
            server, late = self._servers[request.node], self.world.random.uniform(0.0, 0.1)
            self.world.trouble(late)
            self.world.after(late, server.handle, server.run, self.world.random.choice(earlier[-4:]))


def test_it_finds_a_text_with_the_token_of_an_acquire(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late copy of the acquire request makes a text adoptable again, unless the text has a token of its own."""
    claim = hand_off.text_claim

    def keep_token(lease: Lease, now: float) -> Claim:
        return claim(lease, now)._replace(token=lease.claim.token)

    monkeypatch.setattr(hand_off, "text_claim", keep_token)
    assert "adopted before" in found(HAND_OFFS._replace(performer=LateAcquires), 200)


def test_it_finds_a_text_that_takes_from_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text adopts from the holder that has made it only, not from a later one."""
    wrong = rewritten("mutex_hand_over", "if by ~= token and by ~= ARGV[5] then", "if not held then")
    monkeypatch.setattr(Process, "adopting", ADOPT._replace(acquire_script=wrong))
    assert "hold" in found(HAND_OFFS, 200)


def test_it_finds_a_lock_that_is_handed_off_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Hold.end

    def keep(self: Hold, kind: End = End.RELEASED) -> bool:
        return kind is End.TRANSFERRED or end(self, kind)

    monkeypatch.setattr(Hold, "end", keep)
    finding = found(HAND_OFFS, 50)  # the first of both consequences
    assert "both hold" in finding or "is not free" in finding


def test_it_finds_a_leader_that_was_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader must not lead by what it remembers: its lease may have ended during a pause."""
    monkeypatch.setattr(Leader, "leading", property(lambda self: self._term is not None))
    assert "both lead" in found(ELECTIONS, 300)


def test_it_finds_a_leader_that_stops_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that begins to stop at the end of the lease still runs when the next leader is elected."""

    def until_the_end(self: Any) -> float:
        return self._lock.remaining if self._standing else 0.0

    monkeypatch.setattr(Leader, "_seconds_left", until_the_end)
    monkeypatch.setattr(Candidate, "stop_seconds", lambda self: 0.1 * self._ttl)
    assert "still works" in found(ELECTIONS, 300)


class Denying(Performer):
    """Hears of the loss of a lease more often than servers lose one."""

    def ask(self, node: int, runs: Any, family: bytes, then: Then, *rest: Any) -> None:
        def denied(reply: Any) -> None:
            then(reply if isinstance(reply, Fault) else [0] * len(runs))

        lost = runs[0].script.name == "mutex_extend" and self.world.chance(0.3)
        super().ask(node, runs, family, denied if lost else then, *rest)


def test_it_finds_a_lost_lead_that_is_released_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that hears of the loss of its lease may need the rest of the lease to stop its work."""
    setting = ELECTIONS._replace(performer=Denying)
    assert all(play(seed, setting).grants for seed in range(20))
    monkeypatch.delattr(TermHold, "kept_until")
    assert "still works" in found(setting, 300)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("mutex_release", "if keep > 0 then", "if false then"),
        ("mutex_extend", "math.max(redis.call('PTTL', lock), ttl)", "ttl"),
    ],
)
def test_it_finds_a_period_that_ends_early(name: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a release nor a renewal shortens the time for which the key stays."""
    kind = "release_script" if name == "mutex_release" else "extend_script"
    plant(monkeypatch, PERIODIC._replace(**{kind: rewritten(name, right, wrong)}))
    assert "after the last start" in found(PERIODS, 1000)


def test_it_finds_a_period_that_ends_with_its_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a dead holder stays for the period, not for the ttl."""
    monkeypatch.setattr(PeriodicPrimitive, "acquire_request", Primitive.acquire_request)
    assert "after the last start" in found(PERIODS, 400)


def plant(monkeypatch: pytest.MonkeyPatch, primitive: Primitive) -> None:
    """Let all periods use ``primitive``."""
    monkeypatch.setattr("tests.simulation.roles.PERIODIC", primitive)
