"""The values that a lock handle and its store exchange: a `Claim` asks for a lock, a `Lease` or a `Refusal` answers."""

from __future__ import annotations

import math
import os
import re
from binascii import b2a_base64
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from .keys import Keys

Seconds = float | int | timedelta

DRIFT = 0.01  # share of the ttl by which two clocks may diverge while a lease lasts
PRECISION = 0.002  # seconds: Redis expires keys with a precision of a millisecond
LEAST = 0.003  # seconds: the shortest ttl; drift and precision would leave too little of a shorter lease
MAX_SECONDS = 1e10  # seconds, 317 years: Lua counts the milliseconds of this time without rounding

_ATTEMPT = 8  # hex digits at the end of a token: the number of the attempt
_SECRET = 16  # characters at the beginning of a token: 96 random bits in base64
_FIRST = b"0" * _ATTEMPT
_TOKEN = re.compile(rb"[\w-]{16}[0-9a-f]{8}")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Claim(NamedTuple):
    """The request of one ``acquire()``: the lock ``name`` for ``ttl`` seconds, under a secret ``token``.

    ``owner``: the caller as JSON. A waiting ``acquire()`` makes several attempts. Each attempt has another number in
    the last eight hex digits of the token, so that a late cancellation of one attempt does not release the next. The
    number is the milliseconds from ``acquire()`` to the attempt. Inspection adds it to ``since``, the time of
    ``acquire()`` in the owner, to show the time of the granted attempt.
    """

    name: str
    all_keys: tuple[Keys, ...]  # the keys of one lock, or of all locks of a striped lock or multilock
    token: bytes
    owner: bytes
    ttl: float
    fencing: bool = False
    require_all: bool = False  # True: all locks must be granted (multilock). False: one lock suffices (striped lock)
    asked: float = math.inf  # the time of acquire(), by the store's clock; infinite: unknown
    holder: bytes = b""  # reentrant locks: the calling thread or task, see `current_holder`
    previous: bytes = b""  # adopt(): the token of the holder that has handed the lock off
    stripe_set: tuple[Any, ...] = ()  # striped lock: the same for all claims for these stripes, also after a grant
    record: Any = None  # what the primitive of a task or of an idempotent request writes to the store

    @property
    def acquisition_id(self) -> bytes:
        """The first 16 characters of the token, which all attempts of one ``acquire()`` share."""
        return self.token[:_SECRET]

    @property
    def keys(self) -> Keys:
        """The keys of the first lock, which is the only lock unless the claim is for several."""
        return self.all_keys[0]

    def narrowed_to(self, index: int) -> Claim:
        """Return this claim for only the lock at ``index`` (from 1) of `all_keys`, which was granted."""
        return self._replace(all_keys=self.all_keys[index - 1 : index])

    def with_rest_of(self, whole: Claim) -> Claim:
        """Return this claim, a part of ``whole``, with all locks of ``whole``, its own lock first."""
        return self._replace(all_keys=(self.keys, *(keys for keys in whole.all_keys if keys != self.keys)))

    def next_attempt(self, now: float) -> Claim:
        """Return this claim with a new token for the next attempt. ``now``: monotonic seconds by the store's clock."""
        attempt = max(int(self.token[_SECRET:], 16) + 1, int(max(0.0, now - self.asked) * 1000)) % 16**_ATTEMPT
        return self._replace(token=b"%b%08x" % (self.acquisition_id, attempt))

    def owner_since(self, when: float) -> bytes:
        """Return the owner's JSON with its ``since`` (Unix time) moved to ``when`` (monotonic seconds).

        Returns the owner unchanged if it has no ``since``, or if the time of ``acquire()`` is unknown.
        """
        head, mark, rest = self.owner.partition(b'"since":')
        number = re.match(rb"[\d.]+", rest)
        if number is None or self.asked == math.inf:
            return self.owner
        return b"%b%b%.3f%b" % (head, mark, float(number[0]) + when - self.asked, rest[number.end() :])

    def all_attempts(self) -> Claim:
        """Return a first attempt with a token that matches every attempt; a later attempt unchanged.

        Scripts compare only the beginning of the stored token.
        """
        return self._replace(token=self.acquisition_id) if self.token[_SECRET:] == _FIRST else self


class Lease(NamedTuple):
    """A granted `Claim`. It ends by itself unless it is extended.

    - ``since``: the time at which the granted request was sent.
    - ``valid_until``: the time until which the holder may rely on the lease: the time at which the granted request or
      the last extension was sent, plus the ttl, less clock drift.
    - ``ttl``: seconds. ``since`` and ``valid_until`` are monotonic seconds.
    - ``fencing_token``: ``None`` unless the claim asks for one.
    """

    claim: Claim
    ttl: float
    valid_until: float
    fencing_token: int | None
    since: float
    nodes: tuple[int, ...] = ()  # Redlock: indexes of the nodes that have replied, to which no acquire is in flight

    @classmethod
    def granted(cls, claim: Claim, start: float, fencing_token: int | None = None) -> Lease:
        """Return the lease of ``claim``, whose granted request was sent at ``start`` (monotonic seconds)."""
        token = fencing_token if claim.fencing else None
        return cls(claim, claim.ttl, valid_until(start, claim.ttl), token, start)

    def extended(self, start: float, ttl: float) -> Lease:
        """Return this lease after a confirmed extension to ``ttl`` seconds, sent at ``start`` (monotonic seconds)."""
        return self._replace(ttl=ttl, valid_until=valid_until(start, ttl))

    def shortened(self, now: float, ttl: float) -> Lease:
        """Return this lease, cut to ``ttl`` seconds from ``now`` (monotonic seconds), before an extension to this ttl.

        Without a reply, the shorter end counts, because the server may have run the extension.
        """
        return self._replace(ttl=ttl, valid_until=min(self.valid_until, valid_until(now, ttl)))


class Refusal(NamedTuple):
    """The answer to a `Claim` that was not granted, usually because the lock has another holder.

    ``remaining``: seconds until the holder's lease ends; infinite for a lease without an end. ``holder``: the
    holder's `Owner` as JSON; empty if unknown.
    """

    remaining: float
    holder: str = ""
    sent_at: float = 0.0  # monotonic seconds before the request was sent
    blocking_index: int = 0  # for several locks: the number of a lock that has another holder, counted from 1
    final: bool = False  # the claim is never granted, so its caller must not wait
    answer: bytes = b""  # the stored answer to a request with an idempotency key

    def later(self, now: float) -> Refusal:
        """Return this refusal with the ``remaining`` seconds at the time ``now`` (monotonic seconds)."""
        return self._replace(remaining=max(0.0, self.remaining - (now - self.sent_at)))


class Wait(Enum):
    """What the store does with a refused client. `Primitive.wait_arg` returns it as an argument for the scripts."""

    NO = "nothing: the client does not wait"
    QUEUE = "list the client as a waiter: a newcomer, which does not overtake waiters"
    REQUEUE = "list the client again: it has been a waiter, and may take a lock that is reserved for a waiter"
    LAST_TRY = "remove the client, a waiter so far"

    @property
    def listed(self) -> bool:
        """Whether the client is a waiter after the refusal."""
        return self is Wait.QUEUE or self is Wait.REQUEUE


OnRefusal = Callable[[Refusal], object]


def new_token() -> bytes:
    """Return a new token: 96 random bits in base64, then the digits of attempt 0.

    Each acquisition needs a new token, because the scripts grant a lock again to the token that holds it.
    """
    return b2a_base64(os.urandom(12), newline=False).translate(_URL_SAFE) + _FIRST


def waited_before(token: bytes) -> float:
    """Return the seconds from ``acquire()`` to the attempt with this token; 0 for a token of another library."""
    attempt = token[_SECRET:]
    return int(attempt, 16) / 1000 if attempt != _FIRST and _TOKEN.fullmatch(token) else 0.0


def valid_until(start: float, ttl: float) -> float:
    """Return the time until which a holder may rely on a lease of ``ttl`` seconds, requested at ``start``.

    Allows for clock drift (Redis documentation, "Distributed Locks with Redis"). Both times are monotonic seconds.
    """
    return start + ttl - ttl * DRIFT - PRECISION


@lru_cache(maxsize=256)  # nearly all calls are for times in the settings
def millis(seconds: float) -> bytes:
    """Return ``seconds`` as a script argument: whole milliseconds in decimal digits, at least 1."""
    return b"%d" % max(1, round(seconds * 1000))


def seconds(value: Seconds, what: str) -> float:
    """Return ``value`` as a float in seconds. ``what`` names the value in errors.

    Raises ``TypeError`` unless ``value`` is a number or a ``timedelta``, and ``ValueError`` unless the value is
    positive and at most `MAX_SECONDS`.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be a number of seconds or a timedelta, not {value!r}")
    if not 0 < value <= MAX_SECONDS:
        raise ValueError(f"{what} must be a positive number of seconds, at most {MAX_SECONDS:.0e}, not {value!r}")
    return float(value)


def check_lease(value: float, what: str) -> float:
    """Return ``value``, a ttl in seconds. Raises ``ValueError`` below `LEAST`. ``what``: the name for the message."""
    if value < LEAST:
        raise ValueError(f"{what} must be at least {LEAST:g} s, not {value:g}: less leaves no time to hold the lock")
    return value
