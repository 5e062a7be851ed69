"""Asks Sentinels, or servers of a Cluster, for the addresses of servers."""

from __future__ import annotations

import time
from typing import Any

from ..deadlines import read_replies
from ..pool import ServerPool
from ..resp import encode_command


def replies_of(pool: ServerPool, timeout: float, *commands: str) -> list[Any]:
    """Send ``commands`` to the server of ``pool`` on a new connection, and return the list of replies.

    The replies must arrive within ``timeout`` seconds. If the first reply is an error, it is raised. A later error
    reply is an exception in the list. Also raises redis-py's errors if the connection fails or a reply is late.
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
    """Decode the name or address of a host. Raises ``ValueError`` for an invalid name."""
    host = name.decode()
    host.encode("idna")
    return host
