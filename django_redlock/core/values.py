"""The values that pass between a lock, its algorithm and its store: a lock sends a claim and is granted a lease."""

from __future__ import annotations

import math
import os
import re
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from . import fork
from .keys import Keys

Seconds = float | int | timedelta

DRIFT = 0.01  # of the ttl: the largest difference of two clocks while a lease lasts
PRECISION = 0.002  # Redis expires to the millisecond
LEAST = 0.003  # seconds: nothing is left of a shorter lease after drift and precision


_ATTEMPT = 8  # digits
_SECRET = 24
_FIRST = b"0" * _ATTEMPT
_TOKEN = re.compile(rb"[0-9a-f]{32}")


class Claim(NamedTuple):
    """The request of one ``acquire()``. The token is a new secret each time.

    The last eight digits of the token identify the attempt: milliseconds since ``asked``, or one more than those of the
    attempt before. After an attempt was cancelled, the next one needs another token: the cancellation may arrive late,
    and would release the next attempt, too. For onlookers the digits are the time waited, because the owner's ``since``
    is the time of ``acquire()``.
    """

    name: str
    keys: Keys
    token: bytes
    owner: bytes
    ttl: float
    fencing: bool = False
    payload: Any = b""  # of the primitive: the asking thread or task (rlock, rwlock), the stripes, a task's call
    more_keys: tuple[Keys, ...] = ()  # the other locks of a striped lock or multilock, beside `keys`
    require_all: bool = False  # all of the locks are wanted; else any one of them
    granted_index: int = 0  # the lock that was granted when any one was wanted, counted from 1
    transferable: bool = False  # renewed by the same ttl without limit or fencing: the lease may be handed over
    asked: float = math.inf  # when acquire() was called, by the store's clock

    @property
    def acquisition_id(self) -> bytes:
        """The beginning of the tokens of all attempts."""
        return self.token[:_SECRET]

    @property
    def all_keys(self) -> tuple[Keys, ...]:
        """The keys of every lock that the claim is for."""
        return (self.keys, *self.more_keys)

    def narrowed_to(self, index: int) -> Claim:
        """The claim for one of its locks: the one that was granted, counted from 1."""
        return self._replace(keys=self.all_keys[index - 1], more_keys=(), granted_index=index)

    def for_keys(self, keys: Keys) -> Claim:
        """The claim for the one of its locks that has these ``keys``."""
        return self.narrowed_to(self.all_keys.index(keys) + 1) if self.more_keys else self

    def with_rest_of(self, whole: Claim) -> Claim:
        """The claim for one lock, with the other locks of ``whole``: releasing it releases all that were granted."""
        return self._replace(more_keys=tuple(place for place in whole.all_keys if place != self.keys))

    def next_attempt(self, now: float) -> Claim:
        """The claim for another attempt, made at ``now`` by the store's clock."""
        attempt = max(int(self.token[_SECRET:], 16) + 1, int(max(0.0, now - self.asked) * 1000)) % 16**_ATTEMPT
        return self._replace(token=b"%b%08x" % (self.acquisition_id, attempt))

    def owner_since(self, when: float) -> bytes:
        """The owner with ``when``, by the store's clock, as its ``since`` in place of the time of ``acquire()``."""
        head, mark, rest = self.owner.partition(b'"since":')
        number = re.match(rb"[\d.]+", rest)
        if number is None or self.asked == math.inf:
            return self.owner
        return b"%b%b%.3f%b" % (head, mark, float(number[0]) + when - self.asked, rest[number.end() :])

    def all_attempts(self) -> Claim:
        """The claim that releases any of its attempts, because scripts compare the beginning of a token."""
        return self._replace(token=self.acquisition_id) if self.token[_SECRET:] == _FIRST else self


class Lease(NamedTuple):
    """A granted claim.

    ``valid_until`` and ``since`` are on the monotonic clock; acquisition time and drift are subtracted from the first.
    """

    claim: Claim
    ttl: float
    valid_until: float
    fencing_token: int
    since: float
    generation: int
    nodes: tuple[int, ...] = ()  # of a quorum: the nodes that have replied, so that no acquire is in flight to them
    # After a hand-over without a request: the claim of the new holder. The store still has the previous holder's token.
    new_claim: Claim | None = None
    least: float = math.inf  # shortest ttl of the unanswered extensions, any of which may still reach the server

    @property
    def effective_claim(self) -> Claim:
        """The claim of the holder. The store may still have the token of the previous holder: ``claim``."""
        return self.new_claim or self.claim

    @property
    def shortest_ttl(self) -> float:
        """The shortest ttl that the lease may have on the server, in seconds."""
        return min(self.ttl, self.least)

    def suits(self, claim: Claim) -> bool:
        """Whether the holder of ``claim`` can continue with this lease, without a request to the store."""
        return self.claim.transferable and claim.transferable and claim.ttl == self.ttl and self.least == math.inf

    @classmethod
    def granted(cls, claim: Claim, start: float, fencing_token: int) -> Lease:
        """The lease of a claim that was sent at ``start`` and granted to this process."""
        return cls(claim, claim.ttl, valid_until(start, claim.ttl), fencing_token, start, fork.generation)

    def handed_over(self, claim: Claim, now: float) -> Lease:
        """The same lease for the next local holder.

        Its fencing token is below that of any later grant by the store, because a grant takes longer than 1 µs.
        """
        return self._replace(new_claim=claim, since=now, fencing_token=self.fencing_token + 1)

    def extended(self, start: float, ttl: float) -> Lease:
        """The lease after an extension to ``ttl`` seconds that was sent at ``start``."""
        claim = self.claim if self.new_claim is None else self.claim._replace(owner=self.new_claim.owner)
        return self._replace(claim=claim, ttl=ttl, valid_until=valid_until(start, ttl))

    def shortened(self, now: float, ttl: float) -> Lease:
        """The lease while an extension to fewer seconds is in flight: the server may run it without a reply."""
        return self._replace(ttl=ttl, valid_until=min(self.valid_until, valid_until(now, ttl)))

    def unsure(self, ttl: float) -> Lease:
        """The lease after an extension to ``ttl`` seconds without a reply."""
        return self._replace(least=min(self.least, ttl))

    def replaced(self, longer: Lease) -> Lease:
        """The lease after its extension to ``longer``. An earlier, unanswered extension may still shorten it."""
        surplus = max(0.0, longer.ttl - self.least) * (1 - DRIFT)
        return longer._replace(valid_until=longer.valid_until - surplus, least=self.least)


class Refusal(NamedTuple):
    """The lock has another holder. ``remaining``: seconds left of its lease, infinite for a lease without an end."""

    remaining: float
    holder: str = ""
    asked_at: float = 0.0  # monotonic time before the request was sent
    server_us: int = 0  # the server's clock when it replied
    blocking_index: int = 0  # the one of several locks that has another holder, counted from 1


def new_token() -> bytes:
    """96 random bits in hex, and attempt 0. Never used twice: the scripts grant a token that already holds the lock."""
    return os.urandom(_SECRET // 2).hex().encode() + _FIRST


def waited_before(token: bytes) -> float:
    """Seconds between ``acquire()`` and the attempt with this token; 0 for another client's token."""
    attempt = token[_SECRET:]
    return int(attempt, 16) / 1000 if attempt != _FIRST and _TOKEN.fullmatch(token) else 0.0


def valid_until(start: float, ttl: float) -> float:
    """The time until which a lease is safe that was requested at ``start`` (Redis docs, "Distributed Locks")."""
    return start + ttl - ttl * DRIFT - PRECISION


@lru_cache(maxsize=256)  # nearly all of them are the times in the settings
def millis(seconds: float) -> bytes:
    """``seconds`` in whole milliseconds, 1 at least, as a script's argument."""
    return b"%d" % max(1, round(seconds * 1000))


def seconds(value: Seconds, what: str) -> float:
    """``value`` as a float. Raises ``TypeError`` for other types, ``ValueError`` unless it is positive and finite."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a number of seconds or a timedelta, not {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(f"{what} is a positive number of seconds, not {value!r}")
    return float(value)


def check_lease(value: float, what: str) -> float:
    """``value``. Raises ``ValueError`` for a lease that would end before its grant arrives."""
    if value < LEAST:
        raise ValueError(f"{what} must be at least {LEAST:g} s, not {value:g}: less leaves no time to hold the lock")
    return value
