"""The part of a backend that makes no locks: its options, and the methods that list, describe and force-release."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Never, TypeVar

from ..core.contract import Algorithm, Queues, Store
from ..core.events import Event, Hook, logger, report
from ..core.flow.drivers import adrive, drive
from ..core.flow.requests import Flow, FlowRequest
from ..core.keys import Keys, check_name, check_prefix, keys_for
from ..core.lock_info import Listing, LockInfo
from ..core.options import unknown_options
from ..core.owner import describe_owner
from ..core.process.clock import monotonic
from ..core.values import Seconds, check_lease, seconds
from ..errors import LockError

T = TypeVar("T")

DEFAULT_TTL = 30.0  # seconds
_CALLED_PREFIX = re.compile(r"[!-z|~]{1,128}")
HISTORY_NAMES = 200  # lock names that the history counts separately in a minute, by default


class LockStore:
    """The base class of `Backend`: the options, and the methods for operators."""

    alias = ""
    for_tenants = False  # key_prefix may be a function
    hook: Hook | None = None  # receives the lock events; `build` in `backend_registry` sets it
    keeps_history = False  # whether the last hour is kept
    algorithm: Algorithm
    local_queues: Queues | None = None  # in which callers of this process wait; None: each waits in the store

    def __init__(
        self,
        location: Any = "",
        *,
        key_prefix: str | Callable[[], str] = "redlock",
        ttl: Seconds | None = None,
        max_ttl: Seconds = 300,
        auto_renew: bool = True,
        blocking_timeout: Seconds | None = None,
        history: int | bool = HISTORY_NAMES,
        clock: Callable[[], float] | None = None,
        **unknown: Never,
    ) -> None:
        if unknown:
            raise unknown_options(type(self).__name__, unknown, _option_names(type(self)))
        self.location = location
        self._prefix_of = key_prefix if callable(key_prefix) else None
        if self._prefix_of and not self.for_tenants:
            raise ValueError(f"key_prefix of {type(self).__name__} must be a text: a function works on Redis only")
        # The prefix of the keys that all locks share: the marker of the quarantine and the history.
        self.fixed_prefix = "redlock" if callable(key_prefix) else check_prefix(key_prefix)
        self._encoded_prefix = self.fixed_prefix.encode()
        self.max_ttl = seconds(max_ttl, "max_ttl")
        self.ttl = min(DEFAULT_TTL, self.max_ttl) if ttl is None else self.check_ttl(ttl)
        self.auto_renew = bool(auto_renew)
        self.blocking_timeout = None if blocking_timeout is None else wait_limit(blocking_timeout)
        if not isinstance(history, int) or history < 0:
            raise ValueError(f"history must be a number of names, at least 0, or True or False, not {history!r}")
        names = HISTORY_NAMES if history is True else int(history)
        self.history = names if self.keeps_history and not self._prefix_of else 0  # it would show each tenant all names
        self.clock: Callable[[], float] = clock or monotonic

    @property
    def key_prefix(self) -> str:
        """The beginning of a lock's keys: the option, or the result of the function that is the option.

        Raises ``LockError`` if the function fails or returns no valid prefix.
        """
        return _called_prefix(self._prefix_of) if self._prefix_of else self.fixed_prefix

    @property
    def encoded_prefix(self) -> bytes:
        """`key_prefix` in UTF-8."""
        return self.key_prefix.encode() if self._prefix_of else self._encoded_prefix

    @property
    def tenant_prefix(self) -> str:
        """The prefix that the function ``key_prefix`` returns; ``""`` if the option is a text."""
        return self.key_prefix if self._prefix_of else ""

    def check_ttl(self, ttl: Seconds, what: str = "ttl") -> float:
        """Return ``ttl`` as a float. Raises ``TypeError`` or ``ValueError`` unless 0.003 <= ``ttl`` <= ``max_ttl``."""
        value = check_lease(seconds(ttl, what), what)
        if value > self.max_ttl:
            hint = "; leave ttl out: the lease is renewed while the lock is held, and max_hold= is the limit"
            most = f"{self.max_ttl:g} s (the backend's max_ttl)"
            raise ValueError(f"{what} must be at most {most}, not {value:g}{hint if what == 'ttl' else ''}")
        return value

    # ── inspection ───────────────────────────────────────────────────────────────────────────

    def held(self, pattern: str = "*", limit: int | None = None) -> list[LockInfo]:
        """Return at most ``limit`` live locks whose names match the glob ``pattern``. Raises ``LockUnavailable``."""
        return _logged(self.listing(pattern, limit))

    async def aheld(self, pattern: str = "*", limit: int | None = None) -> list[LockInfo]:
        """`held` for asyncio."""
        return _logged(await self.alisting(pattern, limit))

    def listing(self, pattern: str = "*", limit: int | None = None, max_keys: int | None = None) -> Listing:
        """Return the locks of `held` as a `Listing`, which also says whether the list is complete.

        ``max_keys``: stop after reading about this number of keys, and put the locks with the most waiters first.
        Raises ``LockUnavailable``.
        """
        return self.drive(self._listing(pattern, limit, max_keys))

    async def alisting(self, pattern: str = "*", limit: int | None = None, max_keys: int | None = None) -> Listing:
        """`listing` for asyncio."""
        return await self.adrive(self._listing(pattern, limit, max_keys))

    def describe(self, name: str) -> LockInfo | None:
        """Return holder and waiters of the lock ``name``, or ``None`` if it is free. Raises ``LockUnavailable``."""
        return self.drive(self.algorithm.describe(name, self.keys_of(name), with_waiters=True))

    async def adescribe(self, name: str) -> LockInfo | None:
        """`describe` for asyncio."""
        return await self.adrive(self.algorithm.describe(name, self.keys_of(name), with_waiters=True))

    def force_release(self, name: str, digest: str = "", by: str = "") -> bool:
        """Release the lock ``name`` regardless of its holder, and wake a waiter. Returns whether the lock was released.

        - ``digest`` (""): the ``digest`` of an earlier `LockInfo` of the lock: release only if the lock still has the
          same holders. One of the ``digests`` of a shared lock's `LockInfo`: release only this holder.
        - ``by`` (""): the name of the operator, for the event.

        Raises ``LockUnavailable``.
        """
        return self.drive(self._force_release_flow(name, digest, by))

    async def aforce_release(self, name: str, digest: str = "", by: str = "") -> bool:
        """`force_release` for asyncio."""
        return await self.adrive(self._force_release_flow(name, digest, by))

    def health(self) -> list[dict[str, Any]]:
        """Return a dict for each server: ``node``, ``ok``, ``problems`` and details, such as the version.

        `redlock_check` prints the dicts.
        """
        return self.drive(self._health())

    async def ahealth(self) -> list[dict[str, Any]]:
        """`health` for asyncio."""
        return await self.adrive(self._health())

    def arm(self) -> dict[str, str]:
        """Take new Redis servers into service at once, without a quarantine.

        Only safe if no lock is held on these servers. Returns a dict from node to ``"armed"`` or the reason of the
        failure, empty for a store without quarantine. A node is not armed if its marker names another server, because
        locks of that server may still be held. Raises ``LockUnavailable`` if no node replies.
        """
        return self.drive(self._arm())

    async def aarm(self) -> dict[str, str]:
        """`arm` for asyncio."""
        return await self.adrive(self._arm())

    def prepare(self) -> None:
        """Prepare the servers for the first lock, for example by loading scripts. Never raises."""

    def server_of(self, keys: Keys) -> str:
        """Return the address of the Redis Cluster server that stores ``keys``; ``""`` for other stores.

        The renewal extends the leases of locks with the same address in one pipeline.
        """
        return ""

    # ── for the subclasses ───────────────────────────────────────────────────────────────────

    def keys_of(self, name: str) -> Keys:
        """Return the store's keys for the lock ``name``. Raises ``TypeError`` or ``ValueError`` for an invalid name."""
        return keys_for(self.encoded_prefix, check_name(name))

    _listing: Callable[[str, int | None, int | None], Flow[Listing]]  # arguments of `listing`
    _force_release: Callable[[str, str], Flow[bool]]  # name and digest
    _health: Callable[[], Flow[list[dict[str, Any]]]]
    perform: Callable[[FlowRequest], Any]  # performs one request that a flow (``core.flow``) has yielded, blocking
    aperform: Callable[[FlowRequest], Awaitable[Any]]  # the same on the running event loop

    def _force_release_flow(self, name: str, digest: str, by: str) -> Flow[bool]:
        released = yield from self._force_release(name, digest)
        if released and self.hook is not None:
            report(self.hook, Event("forced", None, name, self.alias, holder=describe_owner(by or None).decode()))
        return released

    def _arm(self) -> Flow[dict[str, str]]:
        return {}
        yield

    def task_store(self) -> Store | None:
        """Return the store for the records of queued and running tasks; ``None`` if this backend can't keep records.

        One Redis, a Redis Cluster, a primary with replicas, and memory can keep records. Several nodes that vote can't,
        because no script can change a record on all of them atomically.
        """
        return None

    def drive(self, flow: Flow[T]) -> T:
        """Perform the requests of ``flow``, a generator (see ``core.flow``), blocking. Returns the flow's result."""
        return drive(flow, self.perform)

    async def adrive(self, flow: Flow[T]) -> T:
        """`drive` for asyncio."""
        return await adrive(flow, self.aperform)

    def close(self) -> None:
        """Close idle connections. The backend can be used again afterwards."""

    async def aclose(self) -> None:
        """`close` for asyncio."""


def _option_names(backend: type) -> list[str]:
    """Return the names of the options that the class ``backend`` and its base classes accept."""
    makers = [vars(each)["__init__"] for each in backend.__mro__[:-1] if "__init__" in vars(each)]
    parameters = [each for maker in makers for each in inspect.signature(maker).parameters.values()]
    return list(dict.fromkeys(each.name for each in parameters if each.kind is each.KEYWORD_ONLY))


def wait_limit(value: Seconds) -> float:
    """Return ``value``, the option ``blocking_timeout``, as a float. Raises ``TypeError`` or ``ValueError``."""
    if value in (0, timedelta()) and not isinstance(value, bool):
        return 0.0
    return seconds(value, "blocking_timeout, if not 0,")


def _logged(listing: Listing) -> list[LockInfo]:
    if listing.unanswered:
        missing = "; ".join(f"{where}: {error}" for where, error in listing.unanswered.items())
        logger.warning("the locks of some servers can't be listed: %s", missing)
    return listing.locks


def _called_prefix(function: Callable[[], str]) -> str:
    """Return the key prefix that ``function`` returns, for example the current tenant's. Raises ``LockError``."""
    where = f"the key prefix of {getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}()"
    try:
        prefix = function()
    except Exception as error:
        raise LockError("", f"{where} is not known: {error!r}") from error
    if not isinstance(prefix, str) or not _CALLED_PREFIX.fullmatch(prefix):
        allowed = "1 to 128 printable ASCII characters without braces and spaces"
        raise LockError("", f"{where} must be {allowed}, not {prefix!r:.150}")
    return prefix
