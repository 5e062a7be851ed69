"""What is locked: the scripts of each kind of lock, and which keys and arguments they take."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

from .lease import PRECISION, Claim, Refusal, millis
from .requests import Run
from .scripts import Script, script

# Seconds that a waiter blocks at the longest. Whatever swallows a wake-up, it looks again after that, and who stands in
# line shows that it is alive.
PATIENCE = 5.0
PATIENCE_IN_LINE = 0.4
_GRACE = {"": 1000, "w": 500, "r": 500}  # ms that it may be late

_YES_NO = (b"0", b"1")
_FENCE, _LEAVE = script("fence_set"), script("leave")


class Primitive(NamedTuple):
    """One kind of lock. Any rule can run it: it says what to ask a node, not which nodes and whose word counts."""

    kind: str
    acquire: Script
    extend: Script
    release: Script
    limit: int = 1  # how many may hold it at once
    mode: str = ""  # of who waits in line: "w" excludes all others, "r" excludes those only; "": there is no line
    order: int = 2  # of those in line, as the scripts have it

    @property
    def patience(self) -> float:
        """Seconds that a waiter blocks at the longest."""
        return PATIENCE_IN_LINE if self.mode else PATIENCE

    @property
    def queue(self) -> int:
        """Milliseconds for which a waiter is listed as one: until it has surely looked again."""
        return round(self.patience * 1000) + _GRACE[self.mode]

    def take(self, claim: Claim, wait: int = 0, node: int = 0) -> Run:
        """Ask for the lock. ``wait``: as in the script, ms for which to queue when refused."""
        keys = claim.keys
        return Run(
            self.acquire,
            (keys.lock, keys.waiters, keys.fence),
            (claim.token, claim.owner, millis(claim.ttl), _YES_NO[claim.fencing], b"%d" % wait),
            node,
            partial(self.free, claim, node=node),
        )

    def prolong(self, claim: Claim, ttl: float, tenure: bytes = b"", node: int = 0) -> Run:
        """Replace the rest of the lease by ``ttl``. ``tenure``: `Lease.tenure`."""
        return Run(self.extend, (claim.keys.lock,), (claim.token, millis(ttl), tenure), node)

    def free(self, claim: Claim, keep: float = 0.0, node: int = 0) -> Run:
        """Give the lock back, ``keep`` seconds from now."""
        kept = millis(keep + PRECISION) if keep > 0 else b"0"
        return Run(self.release, (claim.keys.lock,), (claim.token, kept), node)

    def leave(self, claim: Claim, node: int = 0) -> Run:
        """Be listed as a waiter no more."""
        keys = tuple(key for place in claim.places for key in place[:3])
        args = claim.family + b" " + claim.owner, self.mode.encode()
        return Run(_LEAVE._replace(keys=len(keys)), keys, args, node)

    def remember(self, claim: Claim, token: int, node: int = 0) -> Run:
        """Write down a fencing token, unless a larger one is known."""
        keys = tuple(place.fence for place in (claim.places if claim.every else (claim.keys,)))
        return Run(_FENCE._replace(keys=len(keys)), keys, (b"%d" % token,), node)

    def signals(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        """The wake-up lists of what is in the way."""
        return (claim.keys.wake,)


class Shared(Primitive):
    """A lock that several may hold, each with a lease of its own."""

    def take(self, claim: Claim, wait: int = 0, node: int = 0) -> Run:
        """`Primitive.take`, and who asks for which kind of share."""
        run = super().take(claim, wait, node)
        args = (*run.args, self.kind.encode(), b"%d" % self.limit, claim.holder)
        return run._replace(keys=(*run.keys, claim.keys.wake), args=args)


def scripts(family: str) -> tuple[Script, Script, Script]:
    """The scripts of one family: acquire, extend, release."""
    return script(f"{family}_acquire"), script(f"{family}_extend"), script(f"{family}_release")


MUTEX = Primitive("mutex", *scripts("mutex"))
RLOCK = Shared("rlock", *scripts("shared"))
SEMAPHORE = Shared("semaphore", *scripts("shared"))  # with a limit of its own for each
KINDS: Collection[str] = ("mutex", "rlock", "semaphore", "rwlock", "striped", "multilock")
