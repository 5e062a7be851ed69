"""Functions such as ``lock("order:17")`` for all kinds of locks, on a backend of the ``REDLOCK`` setting.

Each function calls the method of the same name of ``locks[using]``, which documents the options. All functions raise
``ImproperlyConfigured`` for an alias that is not configured, ``TypeError`` for an unknown option, and the errors of the
method.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Unpack

from .backend_registry import DEFAULT_ALIAS, locks
from .backends.base import Backend
from .core.election.callbacks import Callback
from .core.election.leader import Leader
from .core.locks.hand_off import HandedOff
from .core.locks.lock import Lock
from .core.locks.multilock import MultiLock
from .core.locks.rlock import RLock, RWLock
from .core.locks.semaphore import Semaphore, Striped
from .core.options import CommonOptions, LockKwargs, check_options
from .core.values import Seconds
from .transactions import CommitLock


def lock(
    name: str,
    using: str = DEFAULT_ALIAS,
    *,
    release_on_commit: bool | str = False,
    **options: Unpack[LockKwargs],
) -> Lock:
    """Return a lock with one holder at a time. It is not reentrant: see `rlock`.

    ``release_on_commit``: ``True``, or the alias of a database. If the lock is released within a transaction of that
    database (``True``: the default database), it stays held until the transaction is committed or rolled back. The
    option has no effect in coroutines, which have no transactions.
    """
    made = locks[using].lock(name, **options)
    if not release_on_commit:
        return made
    return CommitLock.like(made, release_on_commit)


def adopt(text: str, using: str | None = None, **options: Unpack[CommonOptions]) -> Lock:
    """Take over a held lock from another process. Returns a handle that holds the lock.

    ``text``: the return value of ``hand_off()`` in the other process. ``using``: the alias of the backend, if it is not
    the alias in the other process. ``with adopt(text) as held:`` releases the lock at its end. Raises ``LockLost`` if
    the text was used before or its lease has ended. Other options and errors: ``Backend.adopt``.
    """
    check_options("adopt", options, CommonOptions)
    return _backend_of(text, using).adopt(text, **options)


async def aadopt(text: str, using: str | None = None, **options: Unpack[CommonOptions]) -> Lock:
    """`adopt` for asyncio.

    Use: ``async with await aadopt(text) as held:``.
    """
    check_options("aadopt", options, CommonOptions)
    return await _backend_of(text, using).aadopt(text, **options)


def _backend_of(text: str, using: str | None) -> Backend:
    return locks[HandedOff.parse(text).alias or DEFAULT_ALIAS if using is None else using]


def fair_lock(
    name: str,
    using: str = DEFAULT_ALIAS,
    *,
    release_on_commit: bool | str = False,
    **options: Unpack[CommonOptions],
) -> Lock:
    """Return a lock that is granted strictly in the order of arrival: ``lock(..., fair=True)``."""
    return lock(name, using, release_on_commit=release_on_commit, fair=True, **options)


def rlock(name: str, using: str = DEFAULT_ALIAS, **options: Unpack[CommonOptions]) -> RLock:
    """Return a reentrant lock: the thread or asyncio task that holds it may acquire it again."""
    return locks[using].rlock(name, **options)


def semaphore(name: str, using: str = DEFAULT_ALIAS, *, limit: int, **options: Unpack[CommonOptions]) -> Semaphore:
    """Return a lock with up to ``limit`` holders at once."""
    return locks[using].semaphore(name, limit=limit, **options)


def rwlock(name: str, using: str = DEFAULT_ALIAS, **options: Unpack[CommonOptions]) -> RWLock:
    """Return a read-write lock: ``.read`` can have many holders at once, ``.write`` excludes all other holders."""
    return locks[using].rwlock(name, **options)


def striped(
    name: str,
    stripes: int,
    using: str = DEFAULT_ALIAS,
    *,
    without: Collection[int] = (),
    **options: Unpack[CommonOptions],
) -> Striped:
    """Return a lock that acquires any free one of ``stripes`` locks.

    ``without``: the indexes, starting at 0, of locks that are not to be acquired.
    """
    return locks[using].striped(name, stripes, without=without, **options)


def multilock(names: Iterable[str], using: str = DEFAULT_ALIAS, **options: Unpack[CommonOptions]) -> MultiLock:
    """Return a lock that acquires all of the locks ``names`` or none of them."""
    return locks[using].multilock(names, **options)


def leader(
    name: str,
    on_elected: Callback | None = None,
    on_lost: Callback | None = None,
    using: str = DEFAULT_ALIAS,
    *,
    ttl: Seconds | None = None,
    stop_before: Seconds | None = None,
    owner: str | Mapping[str, Any] | None = None,
) -> Leader:
    """Return a candidate in the election ``name``. At most one of the candidates leads at a time.

    When that candidate stops leading, another candidate takes over.

    The candidate stands for election within ``with`` or ``async with``. ``on_elected`` and ``on_lost`` are called with
    the candidate as their argument; for asyncio they may be coroutine functions. For the other options see
    ``Backend.leader``.
    """
    return locks[using].leader(name, on_elected, on_lost, ttl=ttl, stop_before=stop_before, owner=owner)
