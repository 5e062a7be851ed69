"""Connections between clients and servers: ordered, sometimes slow, sometimes cut; some requests come twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .servers import Server
from .world import World

Then = Callable[[Any], None]
SLOW = 0.05, 2.5
QUICK, VARIES = 0.0002, 0.004 - 0.0002


class Network:
    """How often messages are slow, connections cut and requests carried out twice; never, once the faults have stopped.

    TCP does not do the last. A proxy does that tries again for a client, and so does who says once more what was not
    answered: what the first try sent may be in a socket still. The second time is at once or, if ``again``, any time.
    """

    def __init__(self, world: World, slow: float, cut: float, twice: float, *, again: bool) -> None:
        self.world = world
        self.slow = slow
        self.cut = cut
        self.twice = twice
        self.again = again
        self.gone: set[str] = set()  # whose connections are closed
        self.apart: list[tuple[str, str]] = []  # who can't reach which server, though both run
        self.draw = world.random.random

    def part(self, who: str, server: str, seconds: float) -> None:
        """Lose all that passes between these two for a while; neither is told."""
        self.world.trouble(seconds)
        self.apart.append((who, server))
        self.world.say(who, f"can't reach {server} for {seconds:.2f} s")
        self.world.after(seconds, self.apart.remove, (who, server))

    def delay(self) -> float:
        """How long a message takes."""
        if self.draw() >= self.slow:
            return QUICK + VARIES * self.draw()
        seconds = self.world.random.uniform(*SLOW)
        self.world.trouble(seconds)
        return seconds


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
        if self._lost():
            return
        if not self.open:
            world.after(network.delay(), broken)
            return
        reply = partial(self._reply, answer, broken)
        if network.draw() >= network.twice:
            world.at(self._there, self._arrive, work, reply, broken)
            return
        # The client hears of either; whatever it hears after that is no answer to this.
        one, other = world.random.sample((reply, _unheard), 2)
        late = world.random.uniform(*SLOW) if network.again and world.chance(0.5) else 1e-6
        world.trouble(self._there + late - world.now)
        world.at(self._there, self._arrive, work, one, broken)
        world.at(self._there + late, self._arrive, work, other, broken)

    def _arrive(self, work: Callable[[Then], None], reply: Then, broken: Callable[[], None]) -> None:
        if not self.server.up or self._born != self.server.life:
            self.open = False
            self._network.world.after(self._network.delay(), broken)
        elif self.open:
            self.server.handle(work, reply)

    def _reply(self, answer: Then, broken: Callable[[], None], value: Any) -> None:
        network, world = self._network, self._network.world
        self._back = max(self._back + 1e-6, world.now + network.delay())
        if not self._lost():
            world.at(self._back, self._hear, answer, broken, value)

    def _hear(self, answer: Then, broken: Callable[[], None], value: Any) -> None:
        if self.open:
            answer(value)
        else:
            broken()

    def _lost(self) -> bool:
        """Whether the two can't reach each other: nothing comes of what is sent now, or on this connection later."""
        network = self._network
        lost = bool(network.apart) and (self.who, self.server.name) in network.apart
        if network.draw() < network.cut or lost:
            self.open = False
        return lost


def _unheard(value: Any) -> None:
    del value
