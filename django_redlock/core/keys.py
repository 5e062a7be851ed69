"""The names of Redis keys. Only this module creates and parses them.

All keys of a lock share a hash tag, so a Redis Cluster keeps them in one slot. Only the key that holds the lock ends
with ``}``, so one SCAN pattern finds locks without their auxiliary keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

MAX_NAME_BYTES = 512
_STRIPE = re.compile(r"\{.+\}#\d+", re.DOTALL)
_GLOB = re.compile(r"([*?\[\]\\])")
_GLOB_PART = re.compile(rb"(\*)|(\?)|\[(\^?)((?:\\.|[^\]\\])*)\]?|\\?(.)", re.DOTALL)
_GLOB_MEMBER = re.compile(rb"\\(.)|(.)-(.)|(.)", re.DOTALL)


class Keys(NamedTuple):
    """The Redis keys of one lock."""

    lock: bytes  # the lock itself: a string for a mutex, a hash for a lock with several holders
    waiters: bytes  # zset: waiter -> server time (ms) at which the entry lapses
    wake: bytes  # list: each element is one wake-up, received with BLPOP
    line: bytes  # zset: the fair queue, see ``lua/fair_queue.lua``
    fence: bytes  # string: the last fencing token; a timestamp lock keeps its holder here

    @property
    def of_mutex(self) -> tuple[bytes, bytes, bytes]:
        """The keys that the scripts of a lock without a fair queue need: lock, waiters, wake."""
        return self[:3]

    @property
    def of_queue(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The keys that the scripts of a lock with a fair queue need: lock, waiters, wake, line."""
        return self[:4]

    def wake_key_of(self, acquisition_id: bytes) -> bytes:
        """Return the key of the wake-up list of one waiter in a fair queue, see ``lua/fair_queue.lua``."""
        return self.wake + b":" + acquisition_id


def check_name(name: str) -> bytes:
    """Return the lock name ``name`` as UTF-8 bytes.

    Raises ``TypeError`` if the name is not a ``str``, and ``ValueError`` if the name is empty, longer than 512 bytes,
    not encodable, or begins with ``}`` (its keys would be in different slots of a Redis Cluster).
    """
    if not isinstance(name, str):
        raise TypeError(f"a lock's name must be a str, not {type(name).__name__}: {name!r}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a lock's name must be valid Unicode text: {name!r}") from error
    if not encoded or len(encoded) > MAX_NAME_BYTES:
        raise ValueError(
            f"a lock's name must have 1 to {MAX_NAME_BYTES} bytes in UTF-8, not {len(encoded)}: {name[:40]!r}"
        )
    if encoded[0] == 0x7D:
        raise ValueError(f"a lock's name can't begin with '}}': {name!r}")
    return encoded


def shorten_name(name: str, most: int = MAX_NAME_BYTES) -> str:
    """Return ``name``; above ``most`` bytes in UTF-8, its beginning and a hash. Surrogates are escaped."""
    if not name.isascii():  # JSON can carry a lone surrogate, which UTF-8 can't encode
        name = name.encode(errors="backslashreplace").decode()
    if 4 * len(name) > most and len(encoded := name.encode()) > most:
        name = encoded[: most - 40].decode(errors="ignore") + "~" + sha256(encoded).hexdigest()[:32]
    return name


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if it is a valid key prefix.

    Raises ``ValueError`` if the prefix is not a ``str``, is empty, or has braces, which would change the hash tag.
    """
    if not isinstance(prefix, str) or not prefix or "{" in prefix or "}" in prefix:
        raise ValueError(f"key_prefix must be a text without braces, not {prefix!r}")
    return prefix


def keys_for(prefix: bytes, name: bytes) -> Keys:
    """Return the Redis keys of the lock ``name`` (in UTF-8) with the key prefix ``prefix``."""
    return keys_beside(prefix + b":{" + name + b"}")


def keys_beside(lock: bytes) -> Keys:
    """Return the Redis keys of the lock whose own key is ``lock``."""
    return Keys(lock, lock + b":waiters", lock + b":wake", lock + b":line", lock + b":fence")


def hash_tag(key: bytes) -> bytes:
    """Return the hash tag of ``key``, which determines its slot in a Redis Cluster."""
    return key.partition(b"{")[2].partition(b"}")[0]


def stripe_name(name: str, index: int) -> str:
    """Return the lock name of stripe ``index`` (counted from 0) of ``name``. The stripes share a hash tag."""
    return f"{{{name}}}#{index}"


@lru_cache(maxsize=64)  # for names that are used often
def stripe_keys(prefix: bytes, name: str, stripes: int) -> tuple[Keys, ...]:
    """Return the keys of the stripes of ``name``. ``stripes``: their number. Raises the errors of `check_name`."""
    return tuple(keys_for(prefix, check_name(stripe_name(name, index))) for index in range(stripes))


def is_stripe(name: str) -> bool:
    """Return whether ``name`` is the lock name of a stripe."""
    return _STRIPE.fullmatch(name) is not None


def lock_name_of(prefix: bytes, key: bytes) -> str | None:
    """Return the name of the lock with the Redis key ``key``; ``None`` for an auxiliary key or another prefix."""
    head = prefix + b":{"
    if not (key.startswith(head) and key.endswith(b"}")) or len(key) - len(head) > MAX_NAME_BYTES + 1:
        return None
    return key[len(head) : -1].decode(errors="replace")


def glob_escape(text: str) -> str:
    """Return a glob pattern that matches only ``text``."""
    return _GLOB.sub(r"\\\1", text)


def scan_pattern(prefix: str, pattern: str = "*") -> str:
    """Return the SCAN pattern for the keys of locks whose names match the glob ``pattern``."""
    return f"{glob_escape(prefix)}:{{{pattern}}}"


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a name matches the glob ``pattern``.

    The match works as in Redis: by bytes, ``[^…]`` negates, and a backslash escapes.
    """
    parts = []
    for many, one, negated, members, literal in _GLOB_PART.findall(pattern.encode()):
        if literal:
            parts.append(re.escape(literal))
        else:
            parts.append(b".*" if many else b"." if one else _glob_class(members, bool(negated)))
    compiled = re.compile(b"".join(parts), re.DOTALL)
    return lambda name: compiled.fullmatch(name.encode()) is not None


def _glob_class(members: bytes, negated: bool) -> bytes:
    chosen: set[int] = set()
    for escaped, low, high, single in _GLOB_MEMBER.findall(members):
        chosen |= set(range(min(low, high)[0], max(low, high)[0] + 1)) if low else {(escaped or single)[0]}
    if negated:
        chosen = set(range(256)) - chosen
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(chosen)) + b"]" if chosen else b"(?!)"
