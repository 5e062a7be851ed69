"""Questions to Sentinels and to servers of a Cluster."""

from __future__ import annotations

import time
from typing import Any

from ..deadlines import read_replies
from ..pool import ServerPool
from ..resp import encode_command


def replies_of(pool: ServerPool, timeout: float, *commands: str) -> list[Any]:
    """The replies to ``commands`` on a new connection, within ``timeout`` seconds.

    Raises redis-py's errors, also where the first reply is an error.
    """
    connection = pool.connect()
    try:
        connection.send_packed_command([encode_command(*command.encode().split()) for command in commands], False)
        replies = read_replies(connection, len(commands), time.monotonic() + timeout)
    finally:
        pool.discard(connection)
    if isinstance(replies[0], Exception):
        raise replies[0]
    return replies


def decoded_host(name: bytes) -> str:
    """A host's name or address. Raises ``ValueError`` for a name that can't be looked up."""
    host = name.decode()
    host.encode("idna")
    return host
