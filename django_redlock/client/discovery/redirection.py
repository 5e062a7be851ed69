"""Parses MOVED and ASK, the error replies of a Cluster's server that does not serve a slot."""

from __future__ import annotations

import re
from typing import NamedTuple

from redis.exceptions import AskError, MovedError

_REDIRECTION = re.compile(r"(?:(MOVED|ASK) )?(\d+) (.*):(\d+)")


class Redirection(NamedTuple):
    """The address of the server that serves ``slot``, as an error reply MOVED or ASK names it.

    An empty ``host`` means the host of the server that sent the redirection. ``asking`` is true for ASK, which
    redirects one request only, and false for MOVED.
    """

    asking: bool
    slot: int
    host: str
    port: int

    @classmethod
    def read(cls, error: Exception) -> Redirection | None:
        """Parse ``MOVED 3999 127.0.0.1:6381`` or ``ASK …``. Returns ``None`` for any other error.

        If redis-py has removed the first word, the class of the error distinguishes ASK from MOVED.
        """
        found = _REDIRECTION.fullmatch(str(error))
        if found is None or not (found[1] or isinstance(error, AskError)):
            return None
        asking = found[1] == "ASK" if found[1] else not isinstance(error, MovedError)
        return cls(asking, int(found[2]), "" if found[3] == "?" else found[3], int(found[4]))
