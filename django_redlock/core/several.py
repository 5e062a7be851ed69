"""What is about several mutexes at once: any one of them (stripes), or all of them (a multilock)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from .keys import Keys
from .lease import Claim, Refusal
from .primitives import Primitive, scripts
from .requests import Run
from .scripts import script

MOST = 256  # names in one request
_RELEASE = script("several_release")


def _run(run: Run, keys: tuple[bytes, ...], *more: int) -> Run:
    """``run`` on these keys."""
    args = (*run.args, *(b"%d" % each for each in more))
    return run._replace(script=run.script._replace(keys=len(keys)), keys=keys, args=args)


@lru_cache(maxsize=256)
def _flat(places: Sequence[Keys]) -> tuple[bytes, ...]:
    return tuple(key for place in places for key in place)


@lru_cache(maxsize=256)
def _locks(places: Sequence[Keys]) -> tuple[bytes, ...]:
    return tuple(place.lock for place in places)


def _free(run: Run, claim: Claim) -> Run:
    need = len(claim.places) if claim.every else 1
    return _run(run._replace(script=_RELEASE), _locks(claim.places), need)


class Stripes(Primitive):
    """Any one of several mutexes. Once it is known which, it is that mutex."""

    def take(self, claim: Claim, wait: int = 0, node: int = 0) -> Run:
        run = super().take(claim, wait, node)
        return run._replace(script=_MUTEX_ACQUIRE) if claim.which else _run(run, _flat(claim.places), len(claim.places))

    def free(self, claim: Claim, keep: float = 0.0, node: int = 0) -> Run:
        run = super().free(claim, keep, node)
        return _free(run, claim) if claim.others else run

    def signals(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        return [place.wake for place in claim.places]


class Together(Primitive):
    """All of several mutexes, or none. A lease on all of them has one token."""

    def take(self, claim: Claim, wait: int = 0, node: int = 0) -> Run:
        return _run(super().take(claim, wait, node), _flat(claim.places), len(claim.places))

    def prolong(self, claim: Claim, ttl: float, tenure: bytes = b"", node: int = 0) -> Run:
        return _run(super().prolong(claim, ttl, tenure, node), _locks(claim.places))

    def free(self, claim: Claim, keep: float = 0.0, node: int = 0) -> Run:
        return _free(super().free(claim, keep, node), claim)

    def signals(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        return (claim.places[max(0, refusal.which - 1)].wake,)


_MUTEX_ACQUIRE, _MUTEX_EXTEND, _MUTEX_RELEASE = scripts("mutex")
STRIPED = Stripes("striped", script("any_acquire"), _MUTEX_EXTEND, _MUTEX_RELEASE)
MULTILOCK = Together("multilock", script("all_acquire"), script("several_extend"), _RELEASE)
