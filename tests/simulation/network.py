"""Connections between clients and servers: ordered, sometimes slow, sometimes cut; some requests come twice."""

from __future__ import annotations

from collections.abc import Callable
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
        self.again = again
        self.gone: set[str] = set()  # whose connections are closed
        self._apart: list[tuple[str, str]] = []  # who can't reach which server, though both run
        self.draw = world.draw
        self.set(slow, cut, twice)

    def set(self, slow: float, cut: float, twice: float) -> None:
        """From now on so many of the messages, of the connections with each message, and of the requests."""
        self.slow = slow
        self.cut = cut
        self.twice = twice
        self._know()

    def _know(self) -> None:
        self.usual = self.cut + self.slow if not self._apart else 1.0  # a message of a higher number is as most are

    def part(self, who: str, server: str, seconds: float) -> None:
        """Lose all that passes between these two for a while; neither is told."""
        self.world.trouble(seconds)
        self._apart.append((who, server))
        self._know()
        self.world.say(who, f"can't reach {server} for {seconds:.2f} s")
        self.world.after(seconds, self._join, (who, server))

    def _join(self, pair: tuple[str, str]) -> None:
        self._apart.remove(pair)
        self._know()

    def delay(self, number: float, who: str, server: str) -> float | None:
        """How long a message takes whose number this is, between 0 and 1; ``None``: it is lost."""
        if number < self.cut or (who, server) in self._apart:
            return None
        if number >= self.cut + self.slow:
            return QUICK + VARIES * number
        seconds = self.world.random.uniform(*SLOW)
        self.world.trouble(seconds)
        return seconds


class Message:
    """A request on its way, and the reply on its way back. Nobody waits for it, unless a subclass does."""

    __slots__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def work(self, reply: Then) -> None:
        """What the server does, which gives ``reply`` its answer."""
        raise NotImplementedError

    def reply(self, answer: Any) -> None:
        """The server's answer goes back."""
        self.connection.back(self, answer)

    def answered(self, reply: Any) -> None:
        """The reply has come."""

    def broken(self) -> None:
        """The connection was cut: none will come."""


class Connection:
    """One TCP connection: what is sent arrives in order or, once it is cut, not at all."""

    __slots__ = "_back", "_born", "_network", "_there", "_who", "open", "server"

    def __init__(self, network: Network, server: Server, who: str) -> None:
        self._network = network
        self.server = server
        self._who = who
        self.open = True
        self._there = self._back = 0.0
        self._born = server.life  # a restart closes the connections

    def send(self, message: Message) -> None:
        """Have the server do ``message.work(reply)``."""
        network, world = self._network, self._network.world
        number = network.draw()
        delay = QUICK + VARIES * number if number >= network.usual else self._delay(number)
        if delay is None:
            return
        there = world.now + delay
        self._there = there = there if there > self._there else self._there + 1e-6
        if not self.open:
            world.at(there, message.broken)
            return
        if not network.twice or network.draw() >= network.twice:
            world.at(there, self._arrive, message, message.reply)
            return
        # The client hears of either; whatever it hears after that is no answer to this.
        one, other = world.random.sample((message.reply, _unheard), 2)
        late = world.random.uniform(*SLOW) if network.again and world.chance(0.5) else 1e-6
        world.trouble(there + late - world.now)
        world.at(there, self._arrive, message, one)
        world.at(there + late, self._arrive, message, other)

    def _arrive(self, message: Message, reply: Then) -> None:
        server = self.server
        if not server.up or self._born != server.life:
            self.open = False
            self._network.world.after(QUICK, message.broken)
        elif self.open:
            server.handle(message.work, reply)

    def back(self, message: Message, answer: Any) -> None:
        """Have the client hear of the server's answer to what it has sent."""
        network, world = self._network, self._network.world
        number = network.draw()
        delay = QUICK + VARIES * number if number >= network.usual else self._delay(number)
        if delay is not None:
            back = world.now + delay
            self._back = back = back if back > self._back else self._back + 1e-6
            world.at(back, self._hear, message, answer)

    def _hear(self, message: Message, answer: Any) -> None:
        if self.open:
            message.answered(answer)
        else:
            message.broken()

    def _delay(self, number: float) -> float | None:
        """Where it is lost, nothing comes of what is sent now, or on this connection later."""
        delay = self._network.delay(number, self._who, self.server.name)
        self.open = self.open and delay is not None
        return delay


def _unheard(answer: Any) -> None:
    del answer
