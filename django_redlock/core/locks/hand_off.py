"""The text that hands a held lock to another process, and the requests of ``hand_off()`` and ``adopt()``."""

from __future__ import annotations

import base64
import json
from typing import NamedTuple, cast

from ...errors import LockLost, LockNotSupported
from ..contract import Store
from ..flow.requests import Flow
from ..options import LockOptions
from ..primitives.base import Primitive
from ..values import Claim, Lease, Refusal, new_token

_VERSION = 1
_ADOPTABLE = {"mutex", "striped", "multilock", "timestamp"}  # kinds of locks with one holder
NOT_HANDED_OFF = "the store did not confirm the hand-off"
HANDED_OFF = "handed_off"  # the `reason` of the event "released"


class HandedOff(NamedTuple):
    """The fields of the text that hands a held lock to another process.

    ``names``: the lock's name, or all names of a multilock. ``token``: the token under which the store has the lock.
    ``ttl``: the ttl in seconds of the adopted lock, unless ``adopt()`` is given another one. ``fencing_token``:
    ``None`` for a lock without ``fencing=True``.
    """

    alias: str
    key_prefix: str
    names: tuple[str, ...]
    is_multilock: bool
    token: bytes
    ttl: float
    fencing_token: int | None

    def text(self) -> str:
        """Return the fields, encoded as a text of letters, digits, ``-`` and ``_``."""
        contents = [part.decode() if isinstance(part, bytes) else part for part in (_VERSION, *self)]
        encoded = json.dumps(contents, separators=(",", ":"), ensure_ascii=False).encode()
        return base64.urlsafe_b64encode(encoded).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> HandedOff:
        """Return the fields that ``text`` encodes.

        Raises ``TypeError`` unless ``text`` is a ``str``, and ``ValueError`` unless `HandedOff.text` has made it. The
        error doesn't show the text, which is a secret.
        """
        if not isinstance(text, str):
            raise TypeError(f"the text of hand_off() is a str, not {type(text).__name__}")
        try:
            contents = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
            version, alias, key_prefix, names, is_multilock, token, ttl, fencing_token = contents
            parts = str(alias), str(key_prefix), tuple(map(str, names)), bool(is_multilock), token.encode()
            if version == _VERSION and parts[2]:
                return cls(*parts, float(ttl), None if fencing_token is None else int(fencing_token))
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            pass
        raise ValueError(f"this text of {len(text)} characters was not made by hand_off(), or was cut")


def check_hand_off(store: Store, kind: str, name: str, options: LockOptions) -> None:
    """Raise ``LockNotSupported`` if a lock of this kind can't be handed off."""
    if kind not in _ADOPTABLE:
        kinds = "only a lock with one holder: lock(), a stripe or a multilock"
        raise LockNotSupported(name, f"a {kind} can't be handed off, {kinds}")
    if options.every:
        raise LockNotSupported(name, "a lock with every= can't be handed off")
    if store.adopting is None:
        raise LockNotSupported(name, f"{type(store).__name__} can't hand a lock off: {store.not_adopting}")


def give_flow(store: Store, claim: Claim) -> Flow[Lease]:
    """Give the lock to ``claim``, the claim of a text, and return its lease. Raises ``LockLost`` if it was not held."""
    outcome = yield from store.algorithm.acquire(cast("Primitive", store.adopting), claim, 0.0)
    if isinstance(outcome, Refusal):
        raise LockLost(claim.name)
    return outcome


def adopt_request(
    store: Store, handed: HandedOff, claim: Claim, _wait: float, deadline: float
) -> Flow[Lease | Refusal]:
    """Ask for the lock of ``handed`` in place of the handle that has handed it off."""
    adopting = cast("Primitive", store.adopting)
    outcome = yield from store.algorithm.acquire(adopting, claim._replace(payload=handed.token), deadline)
    if isinstance(outcome, Refusal):
        return outcome
    number, before = outcome.fencing_token, handed.fencing_token
    if number is not None and before is not None:
        number = max(number, before + 1)
    return outcome._replace(claim=outcome.claim._replace(payload=claim.payload), fencing_token=number)


def text_claim(lease: Lease, now: float) -> Claim:
    """Return a claim with a new token, which takes over ``lease`` for the text of a hand-off.

    The text must not have the token of the handle's acquire request. A late copy of that request would grant the lock
    to this token once more after its release. ``now``: monotonic seconds by the store's clock.
    """
    claim = lease.claim
    return claim._replace(
        token=new_token(),
        owner=claim.owner_since(lease.since),
        ttl=lease.ttl,
        fencing=False,
        payload=claim.token,
        all_keys=claim.all_keys if claim.require_all else claim.all_keys[:1],
        asked=now,
    )
