"""An observer that asks repeatedly who holds a lock, and the check of the answers."""

from functools import partial
from typing import Any

from django_redlock.core.flow.requests import Fault, Flow, SendToAll
from django_redlock.core.keys import keys_for
from django_redlock.core.lock_info import LockInfo
from django_redlock.core.values import Lease

from .aftermath import MAX_TTL
from .threads import AND, Thread, held

PAUSE = 0.1, 0.8  # seconds between two questions


class Onlooker:
    def __init__(self, scenario: Any) -> None:
        self._scenario = scenario
        self._world = scenario.world
        self._eyes = scenario.new_process("onlooker")
        self._performer = self._eyes.performer()
        self._silent = 0  # nodes that did not reply to the last question

    def look(self, names: list[str], until: float) -> None:
        """Ask for the holder of a random name, repeatedly until ``until``."""
        if self._world.now >= until:
            return
        name = self._world.random.choice(names)
        holders = self._holders(name)

        def told(said: LockInfo | None, error: BaseException | None) -> None:
            if error is None:
                self._judge(name, holders, said)
            self._world.after(self._world.random.uniform(*PAUSE), partial(self.look, names, until))

        self._performer.drive(self._asking(name), told)

    def _asking(self, name: str) -> Flow[LockInfo | None]:
        """Run `Algorithm.describe`, and count the nodes without an answer."""
        flow, reply = self._eyes.algorithm.describe(name, keys_for(b"sim", name.encode())), None
        while True:
            try:
                request = flow.send(reply)
            except StopIteration as done:
                said: LockInfo | None = done.value
                return said
            reply = yield request
            self._silent = sum(isinstance(each, Fault) for each in reply) if isinstance(request, SendToAll) else 0

    def _holders(self, name: str) -> dict[Thread, Lease]:
        """Returns the holders of the name whose lease was confirmed after the last loss of data on a server."""
        return {
            client: lease
            for client in self._scenario.clients
            if (lease := client.lease) is not None
            and name in held(lease.claim)
            and self._world.now < client.clock.true(lease.valid_until)
            and self._world.forgot < client.clock.true(_confirmed(lease))
        }

    def _judge(self, name: str, before: dict[Thread, Lease], said: LockInfo | None) -> None:
        """Check an answer. A lock that was held during the whole question is not free, and its holder is reported. The
        holder may differ if nodes were silent, because leftover votes may then look like a majority.
        """
        now = self._world.now
        for client, lease in self._holders(name).items():
            asked = before.get(client)
            if asked is None or asked.claim.token != lease.claim.token or now >= client.clock.true(asked.valid_until):
                continue
            if said is None:
                self._scenario.fail(f"{name} is said to be free, and {client.name} holds it")
            if self._silent:
                continue
            if not said.matches(lease):
                self._scenario.fail(f"{name} is said to be another's, and {client.name} holds it")
            for other in self._scenario.clients:
                if self._scenario.alone and other is not client and _owned(other, name, said):
                    self._scenario.fail(f"{other.name} is said to own {name}, and {client.name} holds it")


def _confirmed(lease: Lease) -> float:
    """Returns the time, or an earlier one, of the last acquire or extend request for the lease.

    The ttl of a lease that was shortened is not that of its last request.
    """
    return lease.valid_until - MAX_TTL


def _owned(client: Thread, name: str, said: LockInfo) -> bool:
    lock = client._lock
    return lock is not None and name in lock.name.split(AND) and lock.is_ours(said)
