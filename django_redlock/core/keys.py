"""The names of keys: made and parsed here only.

All keys of one lock share a hash tag, so that Redis Cluster keeps them in one slot. A lock's own key ends with ``}``,
its companions never do, which lets one SCAN pattern find the locks alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

MAX_NAME_BYTES = 512
_STRIPE = re.compile(r"\{.+\}#\d+", re.DOTALL)
_GLOB = re.compile(r"([*?\[\]\\])")
_GLOB_PART = re.compile(rb"(\*)|(\?)|\[(\^?)((?:\\.|[^\]\\])*)\]?|\\?(.)", re.DOTALL)
_GLOB_MEMBER = re.compile(rb"\\(.)|(.)-(.)|(.)", re.DOTALL)


class Keys(NamedTuple):
    """The Redis keys of one lock."""

    lock: bytes  # what is held; its type is the kind of lock
    waiters: bytes  # zset: who waits -> server time (ms) at which the entry lapses
    wake: bytes  # list: one element is one wake-up, taken with BLPOP
    fence: bytes  # string: the last fencing token

    def wake_key_of(self, acquisition_id: bytes) -> bytes:
        """The wake-up list of one waiter alone, as `fair_queue.lua` has it."""
        return self.wake + b":" + acquisition_id


def check_name(name: str) -> bytes:
    """The UTF-8 form of a lock's name.

    Raises ``TypeError`` for what is not a ``str`` and ``ValueError`` for a name that is empty, longer than 512 bytes,
    not encodable, or begins with ``}`` (its keys would land in different slots of a Redis Cluster).
    """
    if not isinstance(name, str):
        raise TypeError(f"a lock's name is a str, not {type(name).__name__}: {name!r}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a lock's name must be valid Unicode text: {name!r}") from error
    if not encoded or len(encoded) > MAX_NAME_BYTES:
        raise ValueError(f"a lock's name has 1 to {MAX_NAME_BYTES} bytes in UTF-8, not {len(encoded)}: {name[:40]!r}")
    if encoded[0] == 0x7D:
        raise ValueError(f"a lock's name can't begin with '}}': {name!r}")
    return encoded


def check_prefix(prefix: str) -> str:
    """A key prefix that keeps the hash tag readable. Raises ``ValueError`` for an empty one or one with braces."""
    if not isinstance(prefix, str) or not prefix or "{" in prefix or "}" in prefix:
        raise ValueError(f"key_prefix is a text without braces, not {prefix!r}")
    return prefix


def keys_for(prefix: bytes, name: bytes) -> Keys:
    """The keys of the lock ``name`` under ``prefix``."""
    lock = prefix + b":{" + name + b"}"
    return Keys(lock, lock + b":waiters", lock + b":wake", lock + b":fence")


def hash_tag(key: bytes) -> bytes:
    """What decides in which slot of a Redis Cluster our ``key`` is."""
    return key.partition(b"{")[2].partition(b"}")[0]


def stripe_name(name: str, index: int) -> str:
    """The name of one stripe of ``name``: all of them have the same hash tag."""
    return f"{{{name}}}#{index}"


@lru_cache(maxsize=64)  # of names that are hot
def stripe_keys(prefix: bytes, name: str, stripes: int) -> tuple[Keys, ...]:
    """The keys of each stripe of ``name``. Raises what `check_name` does."""
    return tuple(keys_for(prefix, check_name(stripe_name(name, index))) for index in range(stripes))


def is_stripe(name: str) -> bool:
    """Whether this is the name of a stripe."""
    return _STRIPE.fullmatch(name) is not None


def lock_name_of(prefix: bytes, key: bytes) -> str | None:
    """The lock's name that ``key`` belongs to, or ``None`` when it is no lock's own key."""
    head = prefix + b":{"
    if not (key.startswith(head) and key.endswith(b"}")) or len(key) - len(head) > MAX_NAME_BYTES + 1:
        return None
    return key[len(head) : -1].decode(errors="replace")


def glob_escape(text: str) -> str:
    """``text`` as a glob pattern that matches just itself."""
    return _GLOB.sub(r"\\\1", text)


def scan_pattern(prefix: str, pattern: str = "*") -> str:
    """The SCAN pattern for the locks whose names match the glob ``pattern``."""
    return f"{glob_escape(prefix)}:{{{pattern}}}"


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """A function that matches names with a glob as Redis does: by bytes, ``[^…]`` negates, a backslash escapes."""
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
