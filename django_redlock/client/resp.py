"""Encodes commands in RESP (redis.io, "Redis serialization protocol specification")."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ..core.flow.requests import EvalScript
from ..core.flow.scripts import Script

# The table saves 1.3 µs of 4.3 µs for each request, because `%` is slow for bytes.
_LONG = 1024
_LENGTHS = [b"\r\n$%d\r\n" % length for length in range(_LONG)]


def encode_command(*parts: bytes) -> bytes:
    """Encode a command and its arguments."""
    return _encode(b"*%d" % len(parts), parts)


def encode_evalsha(call: EvalScript) -> bytes:
    """Encode ``call`` as EVALSHA."""
    return _encode(_evalsha(call.script), (*call.keys, *call.args))


def encode_eval(call: EvalScript) -> bytes:
    """Encode ``call`` as EVAL, for a server that doesn't know the script."""
    return encode_command(b"EVAL", call.script.source, b"%d" % len(call.keys), *call.keys, *call.args)


@cache
def _evalsha(script: Script) -> bytes:
    """Encode the part of EVALSHA before the keys."""
    head = b"*%d\r\n" % (3 + script.keys + script.args)
    return head + b"$7\r\nEVALSHA\r\n$40\r\n%b\r\n$%d\r\n%d" % (script.sha, len(str(script.keys)), script.keys)


def _encode(head: bytes, parts: Iterable[bytes]) -> bytes:
    pieces = [head]
    for part in parts:
        length = len(part)
        pieces.append(_LENGTHS[length] if length < _LONG else b"\r\n$%d\r\n" % length)
        pieces.append(part)
    pieces.append(b"\r\n")
    return b"".join(pieces)
