"""What a lock needs of the place where it is kept. Backends fulfil it; the core knows nothing more of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .events import Hook
from .held import Held
from .keys import Keys
from .lease import Claim, Lease, Refusal, Seconds
from .primitives import Primitive
from .requests import Fault, Flow

if TYPE_CHECKING:
    from .turnstile import Turnstile


class Rule(Protocol):
    """Whose word counts: one node's, a majority's, a primary's with its replicas'. Each method is a flow."""

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]: ...

    def extend(self, primitive: Primitive, lease: Lease, ttl: float) -> Flow[Lease | None]: ...

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[Sequence[Lease | Fault | None]]: ...

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]: ...

    def withdraw(self, primitive: Primitive, claim: Claim) -> Flow[bool]: ...

    def describe(self, name: str, keys: Keys, queue: bool = False) -> Flow[Held | None]: ...


class Store(Protocol):
    """A rule, its clock, and the two ways to carry out what the rule's flows ask for."""

    alias: str
    rule: Rule
    clock: Callable[[], float]
    hook: Hook | None

    def check_ttl(self, ttl: Seconds) -> float: ...

    def server_of(self, keys: Keys) -> str: ...

    def turnstile_for(self, primitive: Primitive) -> Turnstile | None: ...

    def perform(self, request: Any) -> Any: ...

    def aperform(self, request: Any) -> Awaitable[Any]: ...
