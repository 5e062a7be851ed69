"""The values that pass between a lock, its algorithm and its store: claims, leases and refusals."""

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

DRIFT = 0.01  # of the ttl: how far two clocks may run apart while a lease lasts
PRECISION = 0.002  # Redis expires to the millisecond
LEAST = 0.003  # seconds: less leaves nothing after drift and precision


_ATTEMPT = 8  # digits
_SECRET = 24
_FIRST = b"0" * _ATTEMPT
_TOKEN = re.compile(rb"[0-9a-f]{32}")


class Claim(NamedTuple):
    """The request of one ``acquire()``. The token is new for each, and the secret of the lease.

    The last eight digits of the token identify the attempt: milliseconds since ``asked``, or one more than those of the
    attempt before. A cancelled attempt must not be repeated with its token, since the cancellation may arrive late. For
    onlookers the digits are the time waited: the owner's ``since`` is the time of ``acquire()``.
    """

    name: str
    keys: Keys
    token: bytes
    owner: bytes
    ttl: float
    fencing: bool = False
    payload: Any = b""  # what the primitive needs: who asks (rlock, rwlock), which stripes, a task's call
    more_keys: tuple[Keys, ...] = ()  # stripes and multilocks: the other locks, beside `keys`
    require_all: bool = False  # all of these locks; else any one
    granted_index: int = 0  # the stripe that was granted, counted from 1
    transferable: bool = False  # renewed by the same ttl without limit or fencing: the lease may be handed over
    asked: float = math.inf  # the time of acquire(), by the store's clock

    @property
    def acquisition_id(self) -> bytes:
        """The beginning that the tokens of all attempts share."""
        return self.token[:_SECRET]

    @property
    def all_keys(self) -> tuple[Keys, ...]:
        """The keys of every lock of the claim."""
        return (self.keys, *self.more_keys)

    def narrowed_to(self, index: int) -> Claim:
        """The claim to the lock with this index, counted from 1, alone."""
        return self._replace(keys=self.all_keys[index - 1], more_keys=(), granted_index=index)

    def for_keys(self, keys: Keys) -> Claim:
        """The claim to the lock with these keys alone."""
        return self.narrowed_to(self.all_keys.index(keys) + 1) if self.more_keys else self

    def with_rest_of(self, whole: Claim) -> Claim:
        """The claim with the other locks of ``whole``, so that a release also ends votes for those."""
        return self._replace(more_keys=tuple(keys for keys in whole.all_keys if keys != self.keys))

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
        """The claim that releases any attempt: scripts compare the beginning of the token."""
        return self._replace(token=self.acquisition_id) if self.token[_SECRET:] == _FIRST else self


class Lease(NamedTuple):
    """A granted claim. ``valid_until`` and ``since`` are on the store's clock; drift is taken off."""

    claim: Claim
    ttl: float
    valid_until: float
    fencing_token: int
    since: float
    generation: int
    nodes: tuple[int, ...] = ()  # nodes of a quorum that have replied: no acquire is under way to them
    # After a local hand-over: the claim of the new holder. The store still has the previous holder's token.
    new_claim: Claim | None = None
    least: float = math.inf  # the shortest ttl of extensions without a reply, which may still arrive

    @property
    def effective_claim(self) -> Claim:
        """The claim of the present holder."""
        return self.new_claim or self.claim

    @classmethod
    def granted(cls, claim: Claim, start: float, fencing_token: int) -> Lease:
        """The lease of a claim that was sent at ``start`` and granted."""
        return cls(claim, claim.ttl, valid_until(start, claim.ttl), fencing_token, start, fork.generation)

    def handed_over(self, claim: Claim, now: float) -> Lease:
        """The lease for the next holder in this process. The next grant of the store is at least one µs later."""
        return self._replace(new_claim=claim, since=now, fencing_token=self.fencing_token + 1)

    def extended(self, start: float, ttl: float) -> Lease:
        """The lease after an extension to ``ttl`` seconds that was sent at ``start``."""
        claim = self.claim if self.new_claim is None else self.claim._replace(owner=self.new_claim.owner)
        return self._replace(claim=claim, ttl=ttl, valid_until=valid_until(start, ttl))

    def unsure(self, ttl: float) -> Lease:
        """The lease after an extension to ``ttl`` without a reply. It is not handed over locally any more."""
        return self._replace(claim=self.claim._replace(transferable=False), least=min(self.least, ttl))

    def replaced(self, longer: Lease) -> Lease:
        """``longer`` in place of this lease, shortened if an earlier extension may reach the server after it."""
        surplus = max(0.0, longer.ttl - self.least) * (1 - DRIFT)
        return longer._replace(valid_until=longer.valid_until - surplus, least=self.least)


class Refusal(NamedTuple):
    """Refused: another holder has the lock. ``remaining``: seconds of its lease, infinite if that has no end."""

    remaining: float
    holder: str = ""
    asked_at: float = 0.0  # the store's clock before the request was sent
    server_us: int = 0  # the server's clock when it replied
    blocking_index: int = 0  # of several locks: the one that is held, counted from 1


def new_token() -> bytes:
    """96 random bits in hex, and attempt 0. Must not be used twice: the scripts would grant both uses."""
    return os.urandom(_SECRET // 2).hex().encode() + _FIRST


def waited_before(token: bytes) -> float:
    """Seconds between ``acquire()`` and the attempt with this token; 0 for another client's token."""
    attempt = token[_SECRET:]
    return int(attempt, 16) / 1000 if attempt != _FIRST and _TOKEN.fullmatch(token) else 0.0


def valid_until(start: float, ttl: float) -> float:
    """The end of a lease whose request was sent at ``start``, less drift (Redis documentation, "Distributed Locks")."""
    return start + ttl - ttl * DRIFT - PRECISION


@lru_cache(maxsize=256)  # nearly always the times of the settings
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
