"""The kinds of locks that acquire several mutexes in one request.

A striped lock acquires any one of the mutexes, a multilock all of them. ``adopt()`` acquires mutexes from a holder that
has handed them off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..flow.requests import EvalScript
from ..flow.scripts import script
from ..keys import Keys
from ..values import Claim, Refusal, Wait, millis
from .base import MUTEX, Primitive

MAX_LOCKS = 256  # names in one request


@lru_cache(maxsize=256)
def _all_keys(all_keys: Sequence[Keys], fencing: bool) -> tuple[bytes, ...]:
    return tuple(key for keys in all_keys for key in (*keys.of_mutex, *((keys.fence,) if fencing else ())))


@lru_cache(maxsize=256)
def _locks(all_keys: Sequence[Keys], fencing: bool) -> tuple[bytes, ...]:
    return tuple(key for keys in all_keys for key in ((keys.lock, keys.fence) if fencing else (keys.lock,)))


class SeveralMutexes(Primitive):
    """Base class of the kinds of locks that acquire several mutexes in one request."""

    def script_keys(self, claim: Claim, fencing: bool = False) -> tuple[bytes, ...]:
        return _all_keys(claim.all_keys, fencing)

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        call = super().release_request(claim, keep, node)
        token, kept = (*call.args, b"0")[:2]
        need = len(claim.all_keys) if claim.require_all else 1
        return EvalScript(self.release_script, call.keys, (token, kept, b"%d" % need), node)


class StripedPrimitive(SeveralMutexes):
    """A kind of lock that acquires any one of several mutexes. A grant narrows the claim to the granted mutex."""

    def wake_keys(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        return [keys.wake for keys in claim.all_keys]


class MultiPrimitive(SeveralMutexes):
    """A kind of lock that acquires several mutexes with one token, all or none."""

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        args = claim.token, millis(ttl), b"%d" % len(claim.all_keys)
        return EvalScript(self.extend_script, _locks(claim.all_keys, claim.fencing), args, node)

    def wake_keys(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        return (claim.all_keys[max(0, refusal.blocking_index - 1)].wake,)


class AdoptPrimitive(MultiPrimitive):
    """A kind of lock that acquires one or several mutexes from the holder that has handed them off, all or none.

    The field ``previous`` of the claim is the previous holder's token.
    """

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        call = super().acquire_request(claim, Wait.NO, node)
        args = *call.args[:4], claim.previous, b"%d" % len(claim.all_keys)
        return EvalScript(self.acquire_script, _locks(claim.all_keys, claim.fencing), args, node, call.compensation)


_EXTEND_AND_RELEASE = MUTEX.extend_script, MUTEX.release_script
STRIPED = StripedPrimitive(
    "striped", script("striped_acquire"), *_EXTEND_AND_RELEASE, one_holder=True, queued=True, hands_over=True
)
MULTILOCK = MultiPrimitive("multilock", MUTEX.acquire_script, *_EXTEND_AND_RELEASE, one_holder=True)
ADOPT = AdoptPrimitive("adopt", script("mutex_hand_over"), *_EXTEND_AND_RELEASE)
