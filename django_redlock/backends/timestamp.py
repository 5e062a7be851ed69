"""`TimestampBackend`: locks shared with older code that keeps a lock as a timestamp in a Redis key, set with SETNX."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from ..core.algorithms.retries import run_idempotent
from ..core.algorithms.single_node import SingleNode
from ..core.flow.replies import fault_error
from ..core.flow.requests import EvalScript, Fault, Flow
from ..core.flow.scripts import script
from ..core.keys import Keys, check_name, glob_escape, keys_for
from ..core.lock_info import Listing
from ..core.primitives.base import Primitive, script_family
from ..core.values import PRECISION, Claim, Refusal, Seconds, Wait, millis, seconds
from .inspection import describe_found, find_keys
from .redis import RedisBackend

OLD_CODE_POLL_SECONDS = 0.05, 0.2  # pause between two tries while older code holds the lock: it sends no wake-ups
FORCE_RELEASE_TRIES = 5  # the holder may write another time between the look at the lock and its release
UNITS = {"s": b"1000", "ms": b"1"}


class TimestampPrimitive(Primitive):
    """The primitive for a mutex whose value in Redis is the time at which its lease ends.

    ``form``: two script arguments: one unit of the value, and the clock skew, both in milliseconds. The ``previous`` of
    a claim that adopts a lock is the previous holder's token.
    """

    form: tuple[bytes, bytes]

    def acquire_request(self, claim: Claim, wait: Wait = Wait.NO, node: int = 0) -> EvalScript:
        keys = claim.keys.lock, claim.keys.waiters, claim.keys.fence
        args: tuple[bytes, ...] = claim.token, claim.owner, millis(claim.ttl), self.wait_arg(wait), *self.form
        undo = partial(self.release_request, claim, node=node)
        return EvalScript(self.acquire_script, keys, (*args, claim.previous) if claim.previous else args, node, undo)

    def extend_request(self, claim: Claim, ttl: float, node: int = 0) -> EvalScript:
        args = claim.token, millis(ttl), *self.form
        return EvalScript(self.extend_script, (claim.keys.lock, claim.keys.fence), args, node)

    def release_request(self, claim: Claim, keep: float = 0.0, node: int = 0) -> EvalScript:
        if keep > 0:
            return self.extend_request(claim, keep + PRECISION, node)
        return EvalScript(self.release_script, (*claim.keys.of_mutex, claim.keys.fence), (claim.token,), node)

    def force_release_request(self, keys: Keys, digest: str) -> EvalScript:
        return EvalScript(self.release_script, (*keys.of_mutex, keys.fence), (b"", digest.encode()))

    def describe(self, keys: Keys, queue: bool = False) -> EvalScript:
        return EvalScript(
            script("timestamp_describe"), (keys.lock, keys.waiters, keys.fence), (b"%d" % queue, *self.form)
        )


class TimestampAlgorithm(SingleNode):
    """The algorithm for one node that is shared with older clients.

    Waiters poll while an older client holds the lock, because older clients send no wake-ups.
    """

    def _max_block(self, primitive: Primitive, refusal: Refusal) -> float:
        return primitive.max_block if refusal.holder else random.uniform(*OLD_CODE_POLL_SECONDS)


class TimestampBackend(RedisBackend):
    """Locks shared with older code that uses ``SETNX key <end of the lease>``, GET and GETSET, and stays unchanged.

    - ``unit`` ("s"): unit of the values that the older code writes, "s" or "ms".
    - ``key_format``: the older code's name of the key, with ``{name}`` and optionally ``{prefix}``.
    - ``clock_skew``: seconds by which the clocks of the older code's machines may differ from the server's clock.
    - other options: those of `RedisBaseBackend`.

    Older code has no fencing tokens and no quarantine: ``fencing=True`` raises ``LockNotSupported`` and
    ``quarantine=True`` raises ``ValueError``. Source: Redis documentation, SETNX, "Design pattern: Locking with SETNX".
    This backend uses one script and the server's clock, which avoids the races of that pattern on its side.
    """

    for_tenants = False
    kinds = ("mutex",)  # older code has no other kinds
    has_fencing = False
    fair = None
    unfair = "older code does not queue"
    periodic = None
    not_periodic = "older code reads the end of the lease from the key"

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
            raise ValueError(f'unit must be "s" or "ms", not {unit!r}')
        if self.quarantine:
            raise ValueError("quarantine=True is not possible here: older code would not obey it")
        skew = 0.0 if clock_skew in (0, timedelta(0)) else seconds(clock_skew, "clock_skew")
        self.unit, self.key_format, self.clock_skew = unit, key_format, skew
        self._key, self._name_of = _key_format(key_format, self.key_prefix)
        self.primitive = TimestampPrimitive("timestamp", *script_family("timestamp"), one_holder=True, queued=True)
        self.primitive.form = UNITS[unit], b"%d" % round(skew * 1000)
        self.mutex = self.adopting = self.primitive
        self.algorithm = TimestampAlgorithm(self.clock)
        self.algorithm.describe_request = self.primitive.describe

    def keys_of(self, name: str) -> Keys:
        check_name(name)
        key = self._key(name).encode()
        return keys_for(self.encoded_prefix, key)._replace(lock=key)

    def _listing(self, pattern: str, limit: int | None, max_keys: int | None) -> Flow[Listing]:
        found = yield from find_keys(self._key(pattern, glob_escape), None, max_keys, pattern)
        names = filter(None, map(self._name_of, found.keys))
        named = [(name, self.primitive.describe(self.keys_of(name))) for name in names]
        return (yield from describe_found(found, named, pattern, limit, max_keys is not None))

    def _force_release(self, name: str, digest: str) -> Flow[bool]:
        keys = self.keys_of(name)
        for _ in range(FORCE_RELEASE_TRIES):
            held = yield from self.algorithm.describe(name, keys)
            if held is None or digest not in ("", held.digest):
                return False
            reply = yield from run_idempotent(self.primitive.force_release_request(keys, held.digest))
            if isinstance(reply, Fault):
                raise fault_error(name, reply)
            if reply == 1:
                return True
        return False


def _key_format(text: str, prefix: str) -> tuple[Callable[..., str], Callable[[bytes], str | None]]:
    """Parse the option ``key_format``, and return two functions: from a name to its key, and back.

    The first function also takes a function that escapes the parts of the key around the name. The second returns
    ``None`` for a key that is no lock's. Raises ``ValueError`` for an invalid format.
    """
    try:
        head, tail = text.format(name="\0", prefix=prefix).split("\0")
    except Exception as error:
        raise ValueError(f"key_format must have {{name}} once, and may have {{prefix}}, not {text!r}") from error
    shape = re.compile(re.escape(head) + "(.+)" + re.escape(tail), re.DOTALL)

    def key(name: str, escape: Callable[[str], str] = str) -> str:
        return escape(head) + name + escape(tail)

    def name_of(key: bytes) -> str | None:
        found = shape.fullmatch(key.decode(errors="replace"))
        with suppress(ValueError):  # another program's key
            return check_name(found[1]).decode() if found else None
        return None

    return key, name_of
