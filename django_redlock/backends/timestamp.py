"""Locks that are exchanged with old code, which keeps them with SETNX and a timestamp."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from string import Formatter
from typing import Any

from ..core.flows.single import SingleNode, ask
from ..core.held import Held, read_held
from ..core.keys import Keys, check_name, glob_escape, keys_for
from ..core.lease import PRECISION, Claim, Refusal, Seconds, millis, seconds
from ..core.lock import Lock
from ..core.primitives import Primitive, scripts
from ..core.replies import trouble, understood
from ..core.requests import Batch, Fault, Flow, Run
from ..core.scripts import script
from ..core.terms import Terms
from ..errors import LockNotSupported
from .base import Listing
from .looking import PAGE, find
from .redis import RedisBackend

POLL = 0.05, 0.2  # seconds between two looks at a lock of old code, which wakes nobody when it frees it
UNITS = {"s": b"1000", "ms": b"1"}
RETRIES = 3  # of a force release whose lock changes hands meanwhile


class Timestamp(Primitive):
    """A lock whose value is the time at which it ends. ``form``: milliseconds in a unit of it, and clock skew in ms."""

    form: tuple[bytes, bytes]

    def take(self, claim: Claim, wait: int = 0, node: int = 0) -> Run:
        keys, (unit, skew) = claim.keys, self.form
        return Run(
            self.acquire,
            (keys.lock, keys.waiters, keys.fence),
            (claim.token, claim.owner, millis(claim.ttl), b"%d" % wait, unit, skew),
            node,
            partial(self.free, claim, node=node),
        )

    def prolong(self, claim: Claim, ttl: float, tenure: bytes = b"", node: int = 0) -> Run:
        args = claim.token, millis(ttl), *self.form, tenure
        return Run(self.extend, (claim.keys.lock, claim.keys.fence), args, node)

    def free(self, claim: Claim, keep: float = 0.0, node: int = 0) -> Run:
        lock, waiters, wake, holder = claim.keys
        kept = millis(keep + PRECISION) if keep > 0 else b"0"
        return Run(self.release, (lock, waiters, wake, holder), (claim.token, kept, *self.form), node)

    def describe(self, keys: Keys, queue: bool = False) -> Run:
        """Ask who holds the lock."""
        return Run(script("timestamp_describe"), (keys.lock, keys.waiters, keys.fence), (b"%d" % queue, *self.form))


def timestamp(unit: str, skew: float) -> Timestamp:
    """The primitive for values in ``unit``, honoured ``skew`` seconds longer than they say."""
    made = Timestamp("timestamp", *scripts("timestamp"))
    made.form = UNITS[unit], b"%d" % round(skew * 1000)
    return made


class TimestampRule(SingleNode):
    """One node's word, beside clients who wake nobody."""

    primitive: Timestamp

    def _patience(self, primitive: Primitive, refusal: Refusal) -> float:
        return primitive.patience if refusal.holder else random.uniform(*POLL)

    def describe(self, name: str, keys: Keys, queue: bool = False) -> Flow[Held | None]:
        reply = yield from ask(self.primitive.describe(keys, queue))
        return _held(name, reply)


def _held(name: str, reply: Any) -> Held | None:
    if isinstance(reply, Fault):
        raise trouble(name, reply)
    return replace(understood(name, partial(read_held, name), reply), kind="timestamp") if reply else None


class TimestampBackend(RedisBackend):
    """Locks shared with code that does ``SETNX key <when it ends>``, GET and GETSET; that code stays as it is.

    ``unit``: ``"s"`` or ``"ms"``, of the values that the old code writes. ``key_format``: what it calls the key, with
    ``{name}`` and, if you like, ``{prefix}``; ``"{name}"`` is the bare name. ``clock_skew``: seconds by which clocks of
    the old code's machines may differ from the server's. Other options: `RedisBackend`.

    Old code knows neither fencing tokens nor a quarantine: ``LockNotSupported`` and ``ValueError``. Source: Redis
    documentation, SETNX, "Design pattern: Locking with SETNX"; made safe on our side by one script that decides by the
    server's clock.
    """

    kinds = ("mutex",)  # the old code knows no others
    fair = None
    unfair = "the old code does not stand in line"

    def __init__(
        self,
        location: str,
        *,
        unit: str = "s",
        key_format: str = "{prefix}:{name}",
        clock_skew: Seconds = 1,
        **options: Any,
    ) -> None:
        super().__init__(location, **options)
        if unit not in UNITS:
            raise ValueError(f'unit is "s" or "ms", not {unit!r}')
        if self.quarantine:
            raise ValueError("quarantine=True is not possible here: the old code would not keep to it")
        skew = 0.0 if clock_skew in (0, timedelta(0)) else seconds(clock_skew, "clock_skew")
        self.unit, self.key_format, self.clock_skew = unit, key_format, skew
        self._key, self._name_of = _key_format(key_format, self.key_prefix)
        self._primitive = timestamp(unit, skew)
        self.rule = rule = TimestampRule(self.clock)
        rule.primitive = self._primitive

    def _keys(self, name: str) -> Keys:
        check_name(name)
        key = self._key(name).encode()
        return keys_for(self._prefix, key)._replace(lock=key)

    def _make(self, primitive: Primitive, name: str, keys: Keys, terms: Terms) -> Lock:
        if terms.fencing:
            raise LockNotSupported(name, "fencing=True is not supported: the old code has no tokens, so none protects")
        return super()._make(self._primitive, name, keys, terms)

    def _listing(self, pattern: str, limit: int | None, max_keys: int | None) -> Flow[Listing]:
        keys, scanned, complete, lost = yield from find(self._key(pattern, glob_escape), None, max_keys, pattern)
        named = [(name, self._keys(name)) for key in keys if (name := self._name_of(key))]
        locks: list[Held] = []
        for first in range(0, len(named), PAGE):
            page = named[first : first + PAGE]
            replies = yield Batch([self._primitive.describe(keys) for _, keys in page])
            locks += [held for (name, _), reply in zip(page, replies, strict=True) if (held := _held(name, reply))]
        return Listing(locks[:limit], scanned, complete and (limit is None or len(locks) <= limit), lost)

    def _force_release(self, name: str, digest: str) -> Flow[bool]:
        keys = self._keys(name)
        for _ in range(RETRIES):
            held = yield from self.rule.describe(name, keys)
            if held is None or digest not in ("", held.digest):
                return False
            reply = yield from ask(Run(script("timestamp_evict"), keys, (held.digest.encode(),)))
            if isinstance(reply, Fault):
                raise trouble(name, reply)
            if reply == 1:
                return True
        return False


def _key_format(text: str, prefix: str) -> tuple[Callable[..., str], Callable[[bytes], str | None]]:
    """How to make a key of a name (literal parts passed through ``escape``), and a name of a key."""
    parts = list(Formatter().parse(text))
    fields = [field for _, field, _, _ in parts if field is not None]
    plain = not any(spec or conversion for _, _, spec, conversion in parts)
    if fields.count("name") != 1 or not set(fields) <= {"name", "prefix"} or not plain:
        raise ValueError(f"key_format has {{name}} once, and {{prefix}} if you like; not {text!r}")
    values = [literal + {"name": "\0", "prefix": prefix, None: ""}[field] for literal, field, _, _ in parts]
    head, tail = "".join(values).split("\0")
    shape = re.compile(re.escape(head) + "(.+)" + re.escape(tail), re.DOTALL)

    def key(name: str, escape: Callable[[str], str] = str) -> str:
        return escape(head) + name + escape(tail)

    def name_of(key: bytes) -> str | None:
        found = shape.fullmatch(key.decode(errors="replace"))
        return found[1] if found else None

    return key, name_of
