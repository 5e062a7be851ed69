"""What is locked: the scripts of each kind of lock, and which keys and arguments they take."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

from ..flow.requests import EvalScript
from ..flow.scripts import Script, script
from ..values import PRECISION, Claim, Refusal, millis

# Seconds that a waiter blocks at the longest. Whatever swallows a wake-up, it looks again after that, and who stands in
# line shows that it is alive.
MAX_BLOCK = 5.0
MAX_BLOCK_IN_QUEUE = 0.4
_GRACE = {"": 1000, "w": 500, "r": 500}  # ms that it may be late

_YES_NO = (b"0", b"1")
_FENCE, _WAITER_REMOVE = script("fence_set"), script("waiter_remove")


class Primitive(NamedTuple):
    """One kind of lock. Any rule can run it: it says what to ask a node, not which nodes and whose word counts."""

    kind: str
    acquire_script: Script
    extend_script: Script
    release_script: Script
    limit: int = 1  # how many may hold it at once
    access: str = ""  # of who waits in line: "w" excludes all others, "r" excludes those only; "": there is no line
    queue_order: int = 2  # of those in line, as the scripts have it

    @property
    def max_block(self) -> float:
        """Seconds that a waiter blocks at the longest."""
        return MAX_BLOCK_IN_QUEUE if self.access else MAX_BLOCK

    @property
    def waiter_ttl_ms(self) -> int:
        """Milliseconds for which a waiter is listed as one: until it has surely looked again."""
        return round(self.max_block * 1000) + _GRACE[self.access]

    def acquire_request(self, claim: Claim, wait: int = 0, node: int = 0) -> EvalScript:
        """Ask for the lock. ``wait``: as in the script, ms for which to queue when refused."""
        keys = claim.keys
        return EvalScript(
            self.acquire_script,
            (keys.lock, keys.waiters, keys.fence),
            (claim.token, claim.owner, millis(claim.ttl), _YES_NO[claim.fencing], b"%d" % wait),
            node,
            partial(self.release_request, claim, node=node),
        )

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        """Replace the rest of the lease by ``ttl`` seconds."""
        args = claim.token, millis(ttl), _YES_NO[claim.fencing]
        return EvalScript(self.extend_script, (claim.keys.lock,), args, node)

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """Give the lock back, ``keep`` seconds from now."""
        kept = millis(keep + PRECISION) if keep > 0 else b"0"
        return EvalScript(self.release_script, (claim.keys.lock,), (claim.token, kept), node)

    def dequeue_request(self, claim: Claim, node: int = 0) -> EvalScript:
        """Be listed as a waiter no more."""
        keys = tuple(key for place in claim.all_keys for key in place[:3])
        args = claim.acquisition_id + b" " + claim.owner, self.access.encode()
        return EvalScript(_WAITER_REMOVE._replace(keys=len(keys)), keys, args, node)

    def fencing_request(self, claim: Claim, token: int, node: int = 0) -> EvalScript:
        """Write down a fencing token, unless a larger one is known."""
        keys = tuple(place.fence for place in (claim.all_keys if claim.require_all else (claim.keys,)))
        return EvalScript(_FENCE._replace(keys=len(keys)), keys, (b"%d" % token,), node)

    def wake_keys(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        """The wake-up lists of what is in the way."""
        return (claim.keys.wake,)


class SharedPrimitive(Primitive):
    """A lock that several may hold, each with a lease of its own."""

    def acquire_request(self, claim: Claim, wait: int = 0, node: int = 0) -> EvalScript:
        """`Primitive.acquire_request`, and who asks for which kind of share."""
        run = super().acquire_request(claim, wait, node)
        args = (*run.args, self.kind.encode(), b"%d" % self.limit, claim.holder)
        return run._replace(keys=(*run.keys, claim.keys.wake), args=args)


def script_family(family: str) -> tuple[Script, Script, Script]:
    """The scripts of one family: acquire, extend, release."""
    return script(f"{family}_acquire"), script(f"{family}_extend"), script(f"{family}_release")


MUTEX = Primitive("mutex", *script_family("mutex"))
RLOCK = SharedPrimitive("rlock", *script_family("shared"))
SEMAPHORE = SharedPrimitive("semaphore", *script_family("shared"))  # with a limit of its own for each
KINDS: Collection[str] = ("mutex", "rlock", "semaphore", "rwlock", "striped", "multilock")
