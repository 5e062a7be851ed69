"""The kinds of locks that ask for several mutexes in one request.

A striped lock acquires any one of the mutexes, a multilock all of them. ``adopt()`` acquires mutexes from the holder
that has handed them off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..flow.requests import EvalScript
from ..flow.scripts import script
from ..keys import Keys
from ..values import Claim, Refusal
from .base import Primitive, script_family

MAX_LOCKS = 256  # names in one request
_RELEASE = script("multi_release")


def _for_all(run: EvalScript, keys: tuple[bytes, ...], *more: int) -> EvalScript:
    """Return the request ``run`` with other ``keys``, and with the numbers ``more`` after its arguments."""
    args = (*run.args, *(b"%d" % each for each in more))
    return run._replace(script=run.script._replace(keys=len(keys)), keys=keys, args=args)


@lru_cache(maxsize=256)
def _flat(all_keys: Sequence[Keys]) -> tuple[bytes, ...]:
    return tuple(key for keys in all_keys for key in keys)


@lru_cache(maxsize=256)
def _locks(all_keys: Sequence[Keys]) -> tuple[bytes, ...]:
    return tuple(keys.lock for keys in all_keys)


def _release_request(run: EvalScript, claim: Claim) -> EvalScript:
    need = b"%d" % (len(claim.all_keys) if claim.require_all else 1)
    keys, args = _locks(claim.all_keys), (run.args[0], need, *run.args[1:])
    return run._replace(script=_RELEASE._replace(keys=len(keys), args=len(args)), keys=keys, args=args)


class StripedPrimitive(Primitive):
    """A kind of lock that acquires any one of several mutexes. A grant narrows the claim to the granted mutex."""

    def acquire_request(self, claim: Claim, wait: int = 0, node: int = 0) -> EvalScript:
        return _for_all(super().acquire_request(claim, wait, node), _flat(claim.all_keys), len(claim.all_keys))

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        run = super().release_request(claim, keep, node)
        return _release_request(run, claim) if len(claim.all_keys) > 1 else run

    def wake_keys(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        return [keys.wake for keys in claim.all_keys]


class MultiPrimitive(Primitive):
    """A kind of lock that acquires several mutexes with one token, all or none."""

    def acquire_request(self, claim: Claim, wait: int = 0, node: int = 0) -> EvalScript:
        return _for_all(super().acquire_request(claim, wait, node), _flat(claim.all_keys), len(claim.all_keys))

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        return _for_all(super().extend_request(claim, ttl, node), _locks(claim.all_keys))

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        return _release_request(super().release_request(claim, keep, node), claim)

    def wake_keys(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        return (claim.all_keys[max(0, refusal.blocking_index - 1)].wake,)


class AdoptPrimitive(MultiPrimitive):
    """A kind of lock that acquires one or several mutexes from the holder that has handed them off, all or none.

    The ``payload`` of the claim is the token of that holder.
    """

    def acquire_request(self, claim: Claim, wait: int = 0, node: int = 0) -> EvalScript:
        run = super().acquire_request(claim, 0, node)
        fenced = tuple(key for keys in claim.all_keys for key in (keys.lock, keys.fence))
        keys = fenced if claim.fencing else _locks(claim.all_keys)  # few keys: see `Primitive.release_by_key`
        return run._replace(script=run.script._replace(keys=len(keys)), keys=keys, args=(*run.args, claim.payload))


_, _MUTEX_EXTEND, _MUTEX_RELEASE = script_family("mutex")
STRIPED = StripedPrimitive(
    "striped", script("striped_acquire"), _MUTEX_EXTEND, _MUTEX_RELEASE, queued=True, hands_over=True
)
MULTILOCK = MultiPrimitive("multilock", script("multi_acquire"), script("multi_extend"), _RELEASE)
ADOPT = AdoptPrimitive("adopt", script("multi_adopt"), script("multi_extend"), _RELEASE)
