"""What all backends have in common that keep their locks in Redis servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..core.flows.single import ask
from ..core.guard import Guard, quarantine, served
from ..core.history import Minute
from ..core.lease import Seconds, millis, seconds
from ..core.primitives import KINDS, Primitive
from ..core.requests import Fault, Flow, Run
from ..core.scripts import script
from ..core.turnstile import QUEUES, Turnstile
from ..errors import LockUnavailable
from . import annals
from .base import Backend
from .checkup import health
from .locations import node_for
from .looking import load_scripts
from .nodes import ClusterNode
from .probing import probed
from .redis_io import RedisIO, Routes
from .standing import standing
from .wire import spelled_out


def default_node_timeout(ttl: float) -> float:
    """Far below the ttl, so that a node that hangs can't eat up the lease: 5 %, between 50 and 250 ms."""
    return min(0.25, max(0.05, 0.05 * ttl))


class ServerBackend(Backend):
    """Locks in Redis servers.

    ``node_timeout``: seconds after which a server that doesn't answer counts as unreachable (default: 5 % of the ttl,
    between 0.05 and 0.25). ``quarantine``: a server that may have forgotten a lock grants none for ``max_ttl`` seconds.
    ``cohort``: threads of a process, or tasks of an event loop, that wait for one lock queue there, and one of them
    waits in Redis; on one Redis it may go from hand to hand among them so many times in a row (0: each waits alone).
    Other options: `Backend`.
    """

    kinds = KINDS
    default_max_ttl = 300.0
    default_quarantine = False
    with_replicas = False

    def __init__(
        self,
        locations: Sequence[str],
        *,
        node_timeout: Seconds | None = None,
        quarantine: bool | None = None,
        max_ttl: Seconds | None = None,
        cohort: int = 64,
        **options: Any,
    ) -> None:
        self.quarantine = self.default_quarantine if quarantine is None else bool(quarantine)
        if max_ttl is None:
            max_ttl = 60.0 if self.quarantine else self.default_max_ttl
        super().__init__(locations, max_ttl=max_ttl, **options)
        default = default_node_timeout(self.ttl)
        self.node_timeout = default if node_timeout is None else seconds(node_timeout, "node_timeout")
        self.nodes = [node_for(location, self.node_timeout) for location in locations]
        if self.quarantine and any(isinstance(node, ClusterNode) for node in self.nodes):
            raise ValueError("quarantine=True is not possible on a Redis Cluster: it would need a marker in every slot")
        self._turnstile = Turnstile(self, cohort) if _count(cohort, "cohort") else None
        touch = self._touch()
        self._io = RedisIO(self.nodes, self.node_timeout, spelled_out(touch) if touch else b"")
        self.perform, self.aperform = self._io.perform, self._io.aperform  # type: ignore[method-assign]

    def turnstile_for(self, primitive: Primitive) -> Turnstile | None:
        return self._turnstile if primitive.acquire.name in QUEUES else None

    def arm(self) -> dict[str, str]:
        """Take new servers into service at once. By calling it you assert: no lock is held here.

        What became of each node: ``"armed"``, or why not. It is refused where the marker names another server, since
        that one's locks may have been forgotten. Raises ``LockUnavailable`` when no node could be asked.
        """
        return self.drive(self._arm())

    async def aarm(self) -> dict[str, str]:
        """`arm` for asyncio."""
        return await self.adrive(self._arm())

    def _arm(self) -> Flow[dict[str, str]]:
        told: dict[str, str] = {}
        errors: dict[str, Exception] = {}
        args = (millis(self.max_ttl),)
        for index, node in enumerate(self.nodes):
            reply = yield from ask(Run(script("arm"), (self._marker,), args, index))
            if isinstance(reply, Fault):
                errors[node.label] = reply.error
            told[node.label] = (
                f"unreachable: {reply.error}"
                if isinstance(reply, Fault)
                else "armed"
                if reply == 1
                else "refused: its marker names another server, whose locks may still be held; the quarantine goes on"
            )
        if len(errors) == len(self.nodes):
            raise LockUnavailable("", f"no node can be asked: {'; '.join(map(str, errors.values()))}", errors)
        return told

    @property
    def _marker(self) -> bytes:
        return f"{self.key_prefix}:marker".encode()

    def _node_health(self, node: int = 0) -> Flow[list[dict[str, Any]]]:
        rows = yield from health(self.nodes[node].label, node, partial(probed, self))
        return (yield from self._with_standing(rows, node))

    def _with_standing(self, rows: list[dict[str, Any]], node: int) -> Flow[list[dict[str, Any]]]:
        if not self.quarantine:
            return rows
        told = []
        if (touch := self._touch(node)) and any(row.get("role") == "master" for row in rows):
            yield touch
        for row in rows:
            answer = yield from standing(row, self._marker, self.max_ttl, node)
            told.append(answer)
        return told

    def _add_history(self, minute: int, texts: Mapping[str, str]) -> Flow[None]:
        return annals.add(self.key_prefix, minute, texts, self.history, len(self.nodes))

    def _read_history(self, name: str, minutes: Sequence[int]) -> Flow[list[Minute]]:
        return annals.read(self.key_prefix, name, minutes, len(self.nodes))

    def _guard(self) -> Guard | None:
        return quarantine(self.key_prefix, self.max_ttl) if self.quarantine else None

    def _touch(self, node: int = 0) -> Run | None:
        """What starts the clock of a node's quarantine, if that is due. With replicas only who takes a lock does."""
        guard = None if self.with_replicas else self._guard()
        return guard and guard.touch(node)

    def prepare(self) -> bool:
        """Load the scripts into every server that answers in time, and start the clock of a quarantine that is due.

        Whether all of them answered. Never raises.
        """
        whole, guard = True, self._guard()
        for index in range(len(self.nodes)):
            routes = self.perform(Routes(index))
            if isinstance(routes, Fault):
                whole = False
                continue
            for route in routes:
                self.drive(load_scripts(index, route, guard.scripts() if guard else ()))
            if (touch := self._touch(index)) is not None:
                whole = whole and not isinstance(served(self.perform(touch)), Fault)
        return whole

    def close(self) -> None:
        self._io.party.close()
        for node in self.nodes:
            for route in node.used():
                route.close()

    async def aclose(self) -> None:
        for node in self.nodes:
            for route in node.used():
                await route.aclear()


def _count(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{what} is a number from 0 on, not {value!r}")
    return value
