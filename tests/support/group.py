"""Several Redis servers that start and end together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Self

from testproject.redis_server import RedisServer


class Group:
    """Independent `servers`, unless a subclass brings them together in `form()`; they end by `kill -9`."""

    def __init__(self, servers: Iterable[RedisServer]) -> None:
        self.servers = list(servers)
        self._ends = contextlib.ExitStack()

    def form(self) -> None:
        """What makes them one thing; whatever else is started for it belongs into `_ends`."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:  # for a start that fails half-way
            undo.push(self.__exit__)
            for server in self.servers:
                self._ends.enter_context(server)
            self.form()
            undo.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        for server in self.servers:
            with contextlib.suppress(RuntimeError):  # it is not running
                server.kill()  # an orderly end takes a primary up to ten seconds when a replica lags
        self._ends.close()
