"""Several Redis servers that start and end together."""

import contextlib
from collections.abc import Iterable
from typing import Self

from testproject.redis_server import RedisServer


class Group:
    """Independent `servers`, which end by `kill -9`. A subclass can connect them in `form()`."""

    def __init__(self, servers: Iterable[RedisServer]) -> None:
        self.servers = list(servers)
        self._ends = contextlib.ExitStack()

    def form(self) -> None:
        """Connect the servers. Register other resources in `_ends`."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:  # cleans up if the start fails half-way
            undo.push(self.__exit__)
            for server in self.servers:
                self._ends.enter_context(server)
            self.form()
            undo.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        for server in self.servers:
            with contextlib.suppress(RuntimeError):  # the server is not running
                server.kill()  # an orderly shutdown of a primary takes up to ten seconds when a replica lags
        self._ends.close()


class ThreeNodes(Group):
    """Three nodes that the tests of a session share."""

    count = 3

    def __init__(self) -> None:
        super().__init__(RedisServer() for _ in range(self.count))


class FiveNodes(ThreeNodes):
    count = 5
