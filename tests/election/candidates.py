"""Candidates in threads and in processes, which report their events."""

import asyncio
import threading
from queue import Queue
from typing import Any, Self

from django_redlock.backends.redis import RedisBackend


class Candidate:
    """A candidate in a thread. ``expect()`` waits for a callback, which calls ``on_elected`` or ``on_lost``."""

    def __init__(
        self, backend: Any, name: str, *, asynchronous: bool = False, on_elected: Any = None, **options: Any
    ) -> None:
        self._told: Queue[str] = Queue()
        self._ending = threading.Event()
        self.on_elected = on_elected or (lambda _leader: None)
        self.on_lost = lambda _leader: None
        callbacks = (self._aelected, self._alost) if asynchronous else (self._elected, self._lost)
        self.leader = backend.leader(name, *callbacks, **options)
        self._thread = threading.Thread(target=self._arun if asynchronous else self._run, daemon=True)
        self.remaining = []

    def expect(self, event: str) -> None:
        assert self._told.get(timeout=60) == event

    def quiet(self) -> bool:
        """Return whether no unexpected callback was called."""
        return self._told.empty()

    def start(self) -> Self:
        self._thread.start()
        return self

    def end(self) -> None:
        """End the ``with`` block, and wait for its end."""
        self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _elected(self, leader: Any) -> None:
        self._told.put("elected")
        self.on_elected(leader)

    def _lost(self, leader: Any) -> None:
        self.remaining.append(leader.remaining)
        self._told.put("lost")
        self.on_lost(leader)

    async def _aelected(self, leader: Any) -> None:
        self._elected(leader)

    async def _alost(self, leader: Any) -> None:
        self._lost(leader)

    def _run(self) -> None:
        with self.leader:
            self._ending.wait()

    def _arun(self) -> None:
        async def stand() -> None:
            async with self.leader:
                await asyncio.to_thread(self._ending.wait)

        asyncio.run(stand())


def stand(channel: Any, url: str, name: str, ttl: float) -> None:
    """Stand for election in this process until told to end."""
    backend = RedisBackend(url, node_timeout=1)

    def elected(leader: Any) -> None:
        channel.say("elected", token=leader.fencing_token)

    def lost(leader: Any) -> None:
        channel.say("lost", leading=leader.leading)

    with backend.leader(name, elected, lost, ttl=ttl):
        channel.hear("end", timeout=120)
    backend.close()
