"""The values that pass between a lock, its rule and its store: a claim is asked for, a lease is granted."""

from __future__ import annotations

import math
import os
import re
from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

from . import fork
from .keys import Keys

Seconds = float | int | timedelta

DRIFT = 0.01  # of the ttl: how far two clocks may run apart while a lease lasts
PRECISION = 0.002  # Redis expires to the millisecond
LEAST = 0.003  # seconds: what is shorter leaves nothing after drift and precision


_ATTEMPT = 8  # digits
_SECRET = 24
_FIRST = b"0" * _ATTEMPT
_TOKEN = re.compile(rb"[0-9a-f]{32}")


class Claim(NamedTuple):
    """What one ``acquire()`` asks for. The token is new each time: it is the secret of the holding to come.

    The last eight digits of the token tell the attempt: the milliseconds since ``asked``, rounded up where two attempts
    would be the same. A cancelled attempt must not be repeated with the same token, since the cancellation may arrive
    late. The digits also tell how long the holder had waited: the owner's ``since`` is the time of ``acquire()``.
    """

    name: str
    keys: Keys
    token: bytes
    owner: bytes
    ttl: float
    fencing: bool = False
    holder: bytes = b""  # of kinds to which it makes a difference: which thread or task of which process asks
    more_keys: tuple[Keys, ...] = ()  # of kinds that are about several locks: the others, beside `keys`
    require_all: bool = False  # all of these are wanted; else any one
    granted_index: int = 0  # of one that may be any: the one that was granted, counted from 1
    transferable: bool = (
        False  # renewed by its ttl for as long as it is held, and nothing else: another may go on with it
    )
    queue_key: object = None  # who asks with the same one wants just the same; else who gives the same name does
    asked: float = math.inf  # when acquire() was called, by the store's clock

    @property
    def acquisition_id(self) -> bytes:
        """What the tokens of all attempts begin with."""
        return self.token[:_SECRET]

    @property
    def all_keys(self) -> tuple[Keys, ...]:
        """The keys of every lock that it is about."""
        return (self.keys, *self.more_keys)

    def narrowed_to(self, index: int) -> Claim:
        """The claim to just one of these locks, the one that was granted, counted from 1."""
        return self._replace(keys=self.all_keys[index - 1], more_keys=(), granted_index=index)

    def for_keys(self, keys: Keys) -> Claim:
        """The claim to the one of these locks that has such ``keys``."""
        return self.narrowed_to(self.all_keys.index(keys) + 1) if self.more_keys else self

    def with_rest_of(self, whole: Claim) -> Claim:
        """The claim to that one, which knows the others of the ``whole``: freeing it frees whatever it got of those."""
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
        """The claim as it was made, for freeing: scripts compare the beginning of a token, so it frees any attempt."""
        return Claim(self.name, self.keys, self.acquisition_id, *self[3:]) if self.token[_SECRET:] == _FIRST else self


class Lease(NamedTuple):
    """A granted claim. ``valid_until`` is on the monotonic clock, acquisition time and drift already taken off."""

    claim: Claim
    ttl: float
    valid_until: float
    fencing_token: int
    since: float
    generation: int
    nodes: tuple[int, ...] = ()  # of a quorum: those that have answered, so that no acquire is under way to them
    new_claim: Claim | None = None  # of one that was handed on: the holder's own, of which the store doesn't know yet
    least: float = math.inf  # the shortest ttl of extensions without an answer: one may still reach the server

    @property
    def effective_claim(self) -> Claim:
        """What tells this holding from others."""
        return self.new_claim or self.claim

    @classmethod
    def granted(cls, claim: Claim, start: float, fencing_token: int) -> Lease:
        """The lease of a claim that has been granted to this process, and was asked for at ``start``."""
        return cls(claim, claim.ttl, valid_until(start, claim.ttl), fencing_token, start, fork.generation)

    def handed_over(self, claim: Claim, now: float) -> Lease:
        """The same lease for the next. Its number is below that of any later grant, which takes more than a µs."""
        return self._replace(new_claim=claim, since=now, fencing_token=self.fencing_token + 1)

    def extended(self, start: float, ttl: float) -> Lease:
        """The lease after it was extended to ``ttl`` seconds, which was asked for at ``start``."""
        claim = self.claim if self.new_claim is None else self.claim._replace(owner=self.new_claim.owner)
        return self._replace(claim=claim, ttl=ttl, valid_until=valid_until(start, ttl))

    def unsure(self, ttl: float) -> Lease:
        """The lease when an extension to ``ttl`` has no answer. Another holder would not know: it isn't handed on."""
        return self._replace(claim=self.claim._replace(transferable=False), least=min(self.least, ttl))

    def replaced(self, longer: Lease) -> Lease:
        """What is held after this lease has become ``longer``: an earlier extension may reach the server after it."""
        surplus = max(0.0, longer.ttl - self.least) * (1 - DRIFT)
        return longer._replace(valid_until=longer.valid_until - surplus, least=self.least)


class Refusal(NamedTuple):
    """Taken by another. ``remaining`` is what is left of the lease in the way, infinite when it has no end."""

    remaining: float
    holder: str = ""
    asked_at: float = 0.0  # monotonic time before the question was sent,
    server_us: int = 0  # and the server's clock when it answered
    blocking_index: int = 0  # of several locks: the one that is in the way, counted from 1


def new_token() -> bytes:
    """96 random bits in hex, and attempt 0. Never used twice: a script that knows its token would grant both users."""
    return os.urandom(_SECRET // 2).hex().encode() + _FIRST


def waited_before(token: bytes) -> float:
    """Seconds between ``acquire()`` and the attempt with this token; 0 for another client's token."""
    attempt = token[_SECRET:]
    return int(attempt, 16) / 1000 if attempt != _FIRST and _TOKEN.fullmatch(token) else 0.0


def valid_until(start: float, ttl: float) -> float:
    """Until when a lease asked for at ``start`` can be relied on (Redis documentation, "Distributed Locks")."""
    return start + ttl - ttl * DRIFT - PRECISION


@lru_cache(maxsize=256)  # of times that are nearly always those of the settings
def millis(seconds: float) -> bytes:
    """``seconds`` in whole milliseconds, 1 at least, as a script's argument."""
    return b"%d" % max(1, round(seconds * 1000))


def seconds(value: Seconds, what: str) -> float:
    """``value`` as a float. Raises ``TypeError`` for no number or timedelta, ``ValueError`` unless 0 < it < ∞."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a number of seconds or a timedelta, not {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(f"{what} is a positive number of seconds, not {value!r}")
    return float(value)


def check_lease(value: float, what: str) -> float:
    """``value``. Raises ``ValueError`` for a lease that would be over before anybody could rely on it."""
    if value < LEAST:
        raise ValueError(f"{what} must be at least {LEAST:g} s, not {value:g}: less leaves no time to hold the lock")
    return value
