"""What must hold of texts that hand locks off, of leaders, and of periods."""

from typing import Any, NoReturn

from django_redlock.core.values import DRIFT


class RoleChecks:
    """The invariants of `roles`. A scenario has them beside its own."""

    world: Any
    clients: Any

    def __init__(self) -> None:
        self.on_their_way: Any = {}
        self._adopted: set[str] = set()
        self._starts: dict[str, float] = {}  # name -> the earliest time of the last start
        self._started: set[bytes] = set()

    def fail(self, what: str) -> NoReturn:
        """Raise a `Violation`."""
        raise NotImplementedError

    # ── hand-offs ────────────────────────────────────────────────────────────────────────────

    def adopters(self, sender: Any, count: int) -> Any:
        """Returns new threads of any processes, for the adoption of one text."""
        made = []
        for _ in range(count):
            process = self.world.random.choice(self.clients).process
            name = f"{process.name}.adopts-{len(self.clients)}"
            adopter = type(sender)(process, name, self, sender._ttl, sender.primitive)
            adopter.until = sender.until
            made.append(adopter)
            self.clients.append(adopter)
        return made

    def on_its_way(self, text: str, what: Any) -> None:
        """Count the text as a holder, until `arrived`."""
        self.on_their_way[text] = what

    def arrived(self, text: str) -> None:
        """Note that an adoption of the text begins: its lease may change hands at any time now."""
        self.on_their_way.pop(text, None)

    def adopted(self, client: Any, text: str) -> None:
        if text in self._adopted:
            self.fail(f"{client.name} has adopted a text that was adopted before")
        self._adopted.add(text)

    # ── elections ────────────────────────────────────────────────────────────────────────────

    def elected(self, client: Any) -> None:
        """Check that no other candidate leads, or still works as the leader. The work of a process that was paused may
        go on for too long: docs/guarantees says so.
        """
        assert client.leader is not None
        for other in self.clients:
            leader = getattr(other, "leader", None)
            if leader is None or other is client or leader.name != client.leader.name or not other.alive:
                continue
            if other.works and other.paused_until <= other.elected_at:
                self.fail(f"{other.name} still works as the leader, and {client.name} is elected")
            if leader.leading:
                self.fail(f"{other.name} and {client.name} both lead {leader.name}")

    # ── periods ──────────────────────────────────────────────────────────────────────────────

    def started(self, client: Any, lease: Any, sent: float, period: float) -> None:
        """Check that the last start is a period ago. ``sent``: the time of the request for the lease, before which it
        was not granted. The last grant was not after its holder's belief, so two grants are further apart than the
        times that are compared.
        """
        token, name = lease.claim.token, lease.claim.name
        if token in self._started:
            return
        self._started.add(token)
        last = self._starts.get(name)
        if last is not None and self.world.now - last < period * (1 - DRIFT):
            self.fail(
                f"{client.name} starts {name} {self.world.now - last:.3f} s after the last start of a {period} s period"
            )
        self._starts[name] = max(sent, last or 0.0)
