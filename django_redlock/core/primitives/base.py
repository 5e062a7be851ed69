"""The base class of all kinds of locks (primitives), and mutex, periodic mutex, reentrant lock and semaphore."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..flow.requests import EvalScript, SetIfAbsent
from ..flow.scripts import Script, script
from ..keys import Keys
from ..owner import Facts
from ..values import PRECISION, Claim, Refusal, Wait, millis

# The longest time in seconds that a waiter blocks. Then the waiter tries again, in case a wake-up was lost. A waiter in
# a fair queue tries more often, because its tries show that it is alive.
MAX_BLOCK = 5.0
MAX_BLOCK_IN_QUEUE = 0.4

_YES_NO = (b"0", b"1")
_FENCE, _HAND_OVER, _WAITER_REMOVE = script("fence_set"), script("mutex_hand_over"), script("waiter_remove")
_WAKE, _DESCRIBE = script("wake"), script("describe")
# The values of "order" in the scripts of a fair queue. `RESTORED`: for a holder that restores its lock.
RESTORED, READERS_BEHIND_WRITERS, ARRIVAL_ORDER = 0, 1, 2


class Primitive(NamedTuple):
    """A kind of lock: names its Lua scripts, and builds the requests that run them on one node.

    Every algorithm works with every kind.
    """

    kind: str
    acquire_script: Script
    extend_script: Script
    release_script: Script
    limit: int = 1  # the largest number of holders
    access: str = ""  # in a fair queue: "w" excludes all other holders, "r" excludes "w"; "": no fair queue
    queue_order: int = ARRIVAL_ORDER  # of the fair queue
    uses_set_nx: bool = False  # SET NX acquires a free lock: see `set_request`
    one_holder: bool = False  # a holder excludes every other handle
    queued: bool = False  # callers of one process wait in a local queue. A reentrant lock must pass its holder at once
    facts: Facts = ()  # names and values of the fields that this kind adds to the owner, for listings
    period: float = 0.0  # seconds: a periodic mutex is granted at most once in this time
    hands_over: bool = False  # a release may hand the lock over to a local waiter with `hand_over_request`

    @property
    def max_block(self) -> float:
        """The longest time in seconds for which a waiter blocks in the store before its next attempt."""
        return MAX_BLOCK_IN_QUEUE if self.access else MAX_BLOCK

    def wait_arg(self, wait: Wait) -> bytes:
        """Return ``wait`` as the argument of the acquire scripts, see ``lua/mutex_acquire.lua``.

        For a waiter it is the time for which the store lists the waiter: the longest time until the next attempt, and a
        margin.
        """
        if not wait.listed:
            return b"0" if wait is Wait.NO else b"-1"
        listed_ms = round(self.max_block * 1000) + (500 if self.access else 1000)
        return b"%d" % (listed_ms if wait is Wait.QUEUE else -listed_ms)

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        """Return the request that acquires the lock for ``claim``. ``node``: the index of the node."""
        fencing = claim.fencing
        terms = claim.token, claim.owner, millis(claim.ttl), _YES_NO[fencing], self.wait_arg(wait)
        args = (*terms, *self.more_args(claim))
        undo = partial(self.release_request, claim, node=node)
        return EvalScript(self.acquire_script, self.script_keys(claim, fencing), args, node, undo)

    def restore_request(self, claim: Claim, ttl: float) -> EvalScript:
        """Return the request that restores a held lock on a node that has lost it or never had it.

        The request ignores the fair queue, is for the granted stripe only, and is not undone after a timeout.
        """
        held = claim._replace(ttl=ttl, all_keys=claim.all_keys if claim.require_all else claim.all_keys[:1])
        return self._replace(queue_order=RESTORED).acquire_request(held)._replace(compensation=None)

    def more_args(self, claim: Claim) -> tuple[bytes, ...]:
        """Return the arguments of the acquire script that only this kind of lock has."""
        return ()

    def script_keys(self, claim: Claim, fencing: bool = False) -> tuple[bytes, ...]:
        """Return the keys of the lock that the scripts use. ``fencing``: whether to add the fencing token's key."""
        keys = claim.keys.of_queue if self.access else claim.keys.of_mutex
        return (*keys, claim.keys.fence) if fencing else keys

    def set_request(self, claim: Claim) -> SetIfAbsent | None:
        """Return the request that acquires a free lock for ``claim`` with SET NX; ``None`` if only a script can.

        The stored value is that of the acquire script. If the reply is lost, the script grants the lock again to the
        same claim.
        """
        if not self.uses_set_nx or claim.fencing:
            return None
        value = claim.token + b" " + claim.owner
        return SetIfAbsent(claim.keys.lock, value, millis(claim.ttl), 0, partial(self.release_request, claim))

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        """Return the request that lets the lease end ``ttl`` seconds from now."""
        keys = (claim.keys.lock, claim.keys.fence) if claim.fencing else (claim.keys.lock,)
        return EvalScript(self.extend_script, keys, (claim.token, millis(ttl)), node)

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        """Return the request that releases the lock. ``keep``: seconds for which the lock then stays unavailable."""
        args = (claim.token, millis(keep + PRECISION)) if keep > 0 else (claim.token,)
        return EvalScript(self.release_script, self.script_keys(claim), args, node)

    def hand_over_request(self, claim: Claim, following: Claim) -> EvalScript:
        """Return the request that releases the lock of ``claim`` and acquires it for ``following``."""
        keys = (claim.keys.lock, claim.keys.fence) if following.fencing else (claim.keys.lock,)
        terms = following.token, following.owner, millis(following.ttl), _YES_NO[following.fencing]
        return EvalScript(_HAND_OVER, keys, (*terms, claim.token, b"1"))

    def dequeue_request(self, claim: Claim, node: int = 0) -> EvalScript:
        """Return the request that removes ``claim`` from the waiters."""
        args = claim.acquisition_id + b" " + claim.owner, self.access.encode()
        return EvalScript(_WAITER_REMOVE, self.script_keys(claim), args, node)

    def fencing_request(self, claim: Claim, token: int, node: int = 0) -> EvalScript:
        """Return the request that stores the fencing token ``token``, unless the store has a larger one."""
        keys = tuple(each.fence for each in (claim.all_keys if claim.require_all else claim.all_keys[:1]))
        return EvalScript(_FENCE, keys, (b"%d" % token,), node)

    def wake_keys(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        """Return the keys of the lists on which the client blocks after ``refusal``. A release pushes a wake-up."""
        return (claim.keys.wake,)


class SharedPrimitive(Primitive):
    """A kind of lock with several shares, each with its own lease: semaphores, reentrant locks."""

    def more_args(self, claim: Claim) -> tuple[bytes, ...]:
        return self.kind.encode(), b"%d" % self.limit, claim.holder


class PeriodicPrimitive(Primitive):
    """A mutex that is granted at most once in a period: its key stays in the store for at least one period.

    The lease lasts for the ttl, and is renewed as usual.
    """

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        call = super().acquire_request(claim, wait, node)
        token, owner, _, *more = call.args
        return call._replace(args=(token, owner, millis(max(claim.ttl, self.period)), *more))

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        """Return the request that extends the lease, and never shortens the time for which the key is stored."""
        call = super().extend_request(claim, ttl, node)
        return EvalScript(call.script, call.keys, (*call.args, b"1", b"1"), node)


def describe_request(keys: Keys, with_waiters: bool, node: int = 0) -> EvalScript:
    """Return the request that reads a lock, and with ``with_waiters`` also the entries of its waiters."""
    return EvalScript(_DESCRIBE, (keys.lock, keys.waiters), (b"1" if with_waiters else b"0",), node)


def wake_request(keys: Keys, reply: Sequence[bytes], node: int = 0) -> EvalScript:
    """Return the request that wakes a fair queue's waiters. ``reply``: a release script's reply."""
    return EvalScript(_WAKE, tuple(keys.wake_key_of(each) for each in reply[1:]), (), node)


def names_waiters(reply: Any) -> bool:
    """Return whether ``reply`` of a release script names waiters of a fair queue to wake."""
    return type(reply) is list and len(reply) > 1 and all(type(each) is bytes for each in reply[1:])


def is_released(reply: Any) -> bool:
    """Return whether ``reply`` of a release script says that the lock was released."""
    return reply == 1 or (type(reply) is list and reply[:1] == [1])


def script_family(family: str) -> tuple[Script, Script, Script]:
    """Return the scripts ``<family>_acquire``, ``<family>_extend`` and ``<family>_release``."""
    return script(f"{family}_acquire"), script(f"{family}_extend"), script(f"{family}_release")


MUTEX = Primitive("mutex", *script_family("mutex"), uses_set_nx=True, one_holder=True, queued=True, hands_over=True)
PERIODIC = PeriodicPrimitive("mutex", *script_family("mutex"), one_holder=True)
RLOCK = SharedPrimitive("rlock", *script_family("shared"))
SEMAPHORE = SharedPrimitive("semaphore", *script_family("shared"))
KINDS: Collection[str] = ("mutex", "rlock", "semaphore", "rwlock", "striped", "multilock")


def semaphore_primitive(limit: int) -> Primitive:
    return SEMAPHORE._replace(limit=limit, facts=(("limit", limit),))
