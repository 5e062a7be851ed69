"""Connections between clients and servers: ordered, sometimes slow, sometimes cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .servers import Server
from .world import World

Then = Callable[[Any], None]
SLOW, NORMAL = (0.05, 2.5), (0.0002, 0.004)


class Network:
    """How often messages are slow and connections cut; both are zero once the faults have stopped."""

    def __init__(self, world: World, slow: float, cut: float) -> None:
        self.world = world
        self.slow = slow
        self.cut = cut
        self.cuts = 0

    def delay(self) -> float:
        """How long a message takes."""
        return self.world.random.uniform(*(SLOW if self.world.chance(self.slow) else NORMAL))


class Connection:
    """One TCP connection: what is sent arrives in order or, once it is cut, not at all."""

    def __init__(self, network: Network, server: Server, who: str) -> None:
        self._network = network
        self.server = server
        self.who = who
        self.open = True
        self._there = 0.0
        self._back = 0.0
        self._born = server.life  # a restart closes the connections

    def send(self, work: Callable[[Then], None], answer: Then, broken: Callable[[], None]) -> None:
        """Have the server do ``work(reply)``; then ``answer(reply)``, or ``broken()`` when the connection is cut."""
        network, world = self._network, self._network.world
        self._there = max(self._there + 1e-6, world.now + network.delay())

        def reply(value: Any) -> None:
            self._back = max(self._back + 1e-6, world.now + network.delay())
            if world.chance(network.cut):
                self._cut()
            world.at(self._back, lambda: answer(value) if self.open else broken())

        def arrive() -> None:
            if not self.server.up or self._born != self.server.life:
                self.open = False
                world.after(network.delay(), broken)
            elif self.open:
                self.server.handle(lambda: work(reply))

        if world.chance(network.cut):
            self._cut()
        if self.open:
            world.at(self._there, arrive)
        else:
            world.after(network.delay(), broken)

    def _cut(self) -> None:
        if self.open:
            self.open = False
            self._network.cuts += 1
