"""Connections between clients and servers. They keep the order, may be slow or cut, and may deliver a request twice."""

from collections.abc import Callable
from functools import partial
from typing import Any

from .servers import Server
from .world import World

Then = Callable[[Any], None]
Work = Callable[[Then], None]  # what a server does; it passes its answer on
SLOW = 0.05, 2.5
QUICK, VARIES = 0.0002, 0.004 - 0.0002


def _ignore(*_: object) -> None:
    pass


class Network:
    """The rates of slow messages, cut connections and repeated requests. All rates are 0 after the end of the faults.
    TCP does not repeat requests. A proxy may, and so does a client that retries a request without a reply, while the
    first request is still in a socket. The repetition comes at once, or with ``again`` at any time.
    """

    def __init__(self, world: World, slow: float, cut: float, twice: float, *, again: bool) -> None:
        self.world = world
        self.again = again
        self.gone: set[str] = set()  # clients whose connections are closed
        self._apart: list[tuple[str, str]] = []  # pairs of client and server that can't reach each other
        self.draw = world.draw
        self.set(slow, cut, twice)

    def set(self, slow: float, cut: float, twice: float) -> None:
        self.slow = slow
        self.cut = cut
        self.twice = twice
        self._know()

    def _know(self) -> None:
        self.usual = self.cut + self.slow if not self._apart else 1.0  # a message of a higher number is as most are

    def part(self, who: str, server: str, seconds: float) -> None:
        """Drop all messages between a client and a server for ``seconds``. The connections stay open."""
        self.world.trouble(seconds)
        self._apart.append((who, server))
        self._know()
        self.world.say(who, f"can't reach {server} for {seconds:.2f} s")
        self.world.after(seconds, self._join, (who, server))

    def _join(self, pair: tuple[str, str]) -> None:
        self._apart.remove(pair)
        self._know()

    def delay(self, number: float, who: str, server: str) -> float | None:
        """Returns the delay of a message in seconds. ``number``: a random number from 0 to 1. ``None``: the message is
        lost.
        """
        if number < self.cut or (who, server) in self._apart:
            return None
        if number >= self.cut + self.slow:
            return QUICK + VARIES * number
        seconds = self.world.random.uniform(*SLOW)
        self.world.trouble(seconds)
        return seconds


class Connection:
    """One TCP connection. Messages arrive in order until the connection is cut, and not afterwards."""

    __slots__ = "_back", "_born", "_network", "_there", "_who", "open", "server"

    def __init__(self, network: Network, server: Server, who: str) -> None:
        self._network = network
        self.server = server
        self._who = who
        self.open = True
        self._there = self._back = 0.0
        self._born = server.life  # a restart of the server closes its connections

    def send(
        self, work: Callable[[Then], None], answered: Then = _ignore, broken: Callable[[], None] = _ignore
    ) -> None:
        """Send a message. The server calls ``work(reply)``. On the client, ``answered(answer)`` handles the reply, and
        ``broken()`` a cut connection.
        """
        network, world = self._network, self._network.world
        number = network.draw()
        delay = QUICK + VARIES * number if number >= network.usual else self._delay(number)
        if delay is None:
            return
        there = world.now + delay
        self._there = there = there if there > self._there else self._there + 1e-6
        if not self.open:
            world.at(there, broken)
            return
        reply = partial(self._reply, answered, broken)
        if not network.twice or network.draw() >= network.twice:
            world.at(there, self._arrive, work, reply, broken)
            return
        # The client receives one of the two replies, and ignores the second.
        one, other = world.random.sample((reply, _ignore), 2)
        late = world.random.uniform(*SLOW) if network.again and world.chance(0.5) else 1e-6
        world.trouble(there + late - world.now)
        world.at(there, self._arrive, work, one, broken)
        world.at(there + late, self._arrive, work, other, broken)

    def _arrive(self, work: Work, reply: Then, broken: Callable[[], None]) -> None:
        server = self.server
        if not server.up or self._born != server.life:
            self.open = False
            self._network.world.after(QUICK, broken)
        elif self.open:
            server.handle(work, reply)

    def _reply(self, answered: Then, broken: Callable[[], None], answer: Any) -> None:
        network, world = self._network, self._network.world
        number = network.draw()
        delay = QUICK + VARIES * number if number >= network.usual else self._delay(number)
        if delay is not None:
            back = world.now + delay
            self._back = back = back if back > self._back else self._back + 1e-6
            world.at(back, self._hear, answered, broken, answer)

    def _hear(self, answered: Then, broken: Callable[[], None], answer: Any) -> None:
        if self.open:
            answered(answer)
        else:
            broken()

    def _delay(self, number: float) -> float | None:
        """Returns the delay of a message. ``None``: the message is lost, and so are all later messages on this
        connection.
        """
        delay = self._network.delay(number, self._who, self.server.name)
        self.open = self.open and delay is not None
        return delay
