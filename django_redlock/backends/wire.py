"""Requests as bytes. Redis' wire format is simple, and a script's part of it never changes: it is made once."""

from __future__ import annotations

from functools import cache

from ..core.requests import Run
from ..core.scripts import Script


def words(*parts: bytes) -> bytes:
    """A command in RESP, Redis' wire format (redis.io, "Redis serialization protocol specification")."""
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


@cache
def _header(script: Script) -> bytes:
    head = b"*%d\r\n" % (3 + script.keys + script.args)
    return head + b"$7\r\nEVALSHA\r\n$40\r\n%b\r\n$%d\r\n%d\r\n" % (script.sha, len(str(script.keys)), script.keys)


def packed(run: Run) -> bytes:
    """``run`` as EVALSHA."""
    return _header(run.script) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in (*run.keys, *run.args)])


def spelled_out(run: Run) -> bytes:
    """``run`` as EVAL, for a server that doesn't know the script."""
    return words(b"EVAL", run.script.source, b"%d" % len(run.keys), *run.keys, *run.args)
