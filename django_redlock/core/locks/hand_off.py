"""Hand-off of a held lock to another process: the text to pass on, and the flows of ``hand_off()`` and ``adopt()``."""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import Any, NamedTuple, cast

from ...errors import LockLost, LockNotSupported
from ..background.work import background
from ..contract import Store
from ..flow.requests import Flow
from ..primitives.base import Primitive
from ..values import Claim, Lease, Refusal, Seconds, new_token
from .hold import End

_VERSION = 1
HANDED_OFF = "handed_off"  # the `reason` of the event "released"


class HandedOff(NamedTuple):
    """The fields of the text with which another process adopts a held lock.

    ``names``: the lock's name, or all names of a multilock. ``token``: the token of the lock in the store. ``ttl``: the
    default ttl of the adopted lock in seconds. ``fencing_token``: ``None`` for a lock without ``fencing=True``.
    """

    alias: str
    key_prefix: str
    names: tuple[str, ...]
    is_multilock: bool
    token: bytes
    ttl: float
    fencing_token: int | None

    def text(self) -> str:
        """Return the fields as a text of letters, digits, ``-`` and ``_``."""
        *fields, fencing_token = self
        parts = _VERSION, *fields, fencing_token is not None, fencing_token or 0  # as 1.0.0 writes and reads them
        contents = [part.decode() if isinstance(part, bytes) else part for part in parts]
        encoded = json.dumps(contents, separators=(",", ":"), ensure_ascii=False).encode()
        return base64.urlsafe_b64encode(encoded).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> HandedOff:
        """Return the fields in ``text``, a result of `HandedOff.text`.

        Raises ``TypeError`` unless ``text`` is a ``str``, and ``ValueError`` if it is invalid. The error doesn't
        contain the text, which is a secret.
        """
        if not isinstance(text, str):
            raise TypeError(f"the text of hand_off() is a str, not {type(text).__name__}")
        try:
            contents = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
            version, alias, key_prefix, names, is_multilock, token, ttl, fencing, fencing_token = contents
            parts = str(alias), str(key_prefix), tuple(map(str, names)), bool(is_multilock), token.encode()
            if version == _VERSION and parts[2]:
                return cls(*parts, float(ttl), int(fencing_token) if fencing else None)
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            pass
        raise ValueError(f"this text of {len(text)} characters was not made by hand_off(), or was cut")


def hand_off_flow(handle: Any, ttl: Seconds | None) -> Flow[str]:
    """Extend the lease to ``ttl`` seconds (``None``: the ttl of the lock), and detach the handle from the lock.

    Returns the text for the next holder. Errors are those of `Lock.hand_off`.
    """
    store, kind = handle.store, handle.primitive.kind
    if not handle.primitive.one_holder:
        kinds = "only a lock with one holder: lock(), a stripe or a multilock"
        raise LockNotSupported(handle.name, f"a {kind} can't be handed off, {kinds}")
    if handle.primitive.period:
        raise LockNotSupported(handle.name, "a lock with every= can't be handed off")
    if store.adopting is None:
        raise LockNotSupported(handle.name, f"{type(store).__name__} can't hand a lock off: {store.not_adopting}")
    hold = handle.required_hold()
    yield from hold.extend_flow(ttl)
    if not hold.end(End.TRANSFERRED):
        raise hold.not_held_error()
    lease = hold.lease
    claim = text_claim(lease, store.clock())
    try:
        outcome = yield from store.algorithm.acquire(store.adopting, claim, 0.0)
        if isinstance(outcome, Refusal):
            raise LockLost(handle.name)  # noqa: TRY301
        hold.emit("released", held=store.clock() - lease.since, reason=HANDED_OFF)
        kept = outcome.claim.token, handle.options.ttl, lease.fencing_token
        return HandedOff(store.alias, store.key_prefix, handle.names_of(lease), kind == "multilock", *kept).text()
    except BaseException:  # the caller gets no text, and either the hold or the text may have the lock
        hold.end_kind = End.LOST
        hold.release_later()
        background.release_later(store, handle.primitive, claim, cancel=True)
        hold.report_loss("the store did not confirm the hand-off")
        raise


def adopt_flow(handle: Any, handed: HandedOff) -> Flow[None]:
    """Acquire the lock that was handed off as ``handed``. The first ``with`` block of ``handle`` releases it.

    Raises ``LockLost`` if the lease has ended or was adopted before, and ``LockUnavailable``.
    """
    outcome = yield from handle.acquire_flow(0.0, ask=partial(_adopt_request, handle.store, handed))
    if isinstance(outcome, Refusal):
        raise LockLost(handle.name, "the lease that was handed off has ended, or was adopted before")
    handle.adopted = outcome


def _adopt_request(
    store: Store, handed: HandedOff, claim: Claim, _wait: float, deadline: float
) -> Flow[Lease | Refusal]:
    """Acquire the lock in ``handed`` for ``claim``, in place of the previous holder. Returns the lease or a refusal."""
    adopting = cast("Primitive", store.adopting)
    outcome = yield from store.algorithm.acquire(adopting, claim._replace(previous=handed.token), deadline)
    if isinstance(outcome, Refusal):
        return outcome
    number, before = outcome.fencing_token, handed.fencing_token
    if number is not None and before is not None:
        number = max(number, before + 1)
    return outcome._replace(claim=outcome.claim._replace(previous=b""), fencing_token=number)


def text_claim(lease: Lease, now: float) -> Claim:
    """Return a claim with a new token that takes over ``lease`` for a hand-off.

    With the old token, a late copy of the acquire request could grant the lock again after its release.
    """
    claim = lease.claim
    return claim._replace(
        token=new_token(),
        owner=claim.owner_since(lease.since),
        ttl=lease.ttl,
        fencing=False,
        previous=claim.token,
        all_keys=claim.all_keys if claim.require_all else claim.all_keys[:1],
        asked=now,
    )
