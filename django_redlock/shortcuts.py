"""``lock("order:17")``: locks of every kind on a backend of the ``REDLOCK`` setting.

Each function is short for the method of the same name of ``locks[using]``, which says what its options mean. All raise
``ImproperlyConfigured`` for an alias that is not configured, ``TypeError`` for an unknown option, and what the method
raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypedDict, Unpack

from django.db import DEFAULT_DB_ALIAS

from .core.locks.lock import Lock
from .core.locks.multilock import MultiLock
from .core.locks.read_write import RWLock
from .core.locks.reentrant import RLock
from .core.locks.semaphore import Semaphore
from .core.locks.striped import Striped
from .core.options import OnLost, unknown_options
from .core.values import Seconds
from .handler import DEFAULT_ALIAS, locks
from .transactions import CommitLock


class CommonOptions(TypedDict, total=False):
    """The options that all kinds of locks have. Times are seconds; see ``Backend.lock``."""

    ttl: Seconds | None
    blocking: bool
    blocking_timeout: Seconds | None
    auto_renew: bool | None
    max_hold: Seconds | None
    min_hold: Seconds | None
    fencing: bool
    owner: str | Mapping[str, Any] | None
    on_lost: OnLost


class LockKwargs(CommonOptions, total=False):
    """The options of a backend's ``lock()``."""

    fair: bool


def check_options(where: str, options: Mapping[str, Any], known: type[CommonOptions] = LockKwargs) -> None:
    """Raise ``TypeError`` for an unknown option, when it is written and not when the lock is made."""
    if unknown := [name for name in options if name not in known.__annotations__]:
        raise unknown_options(where, unknown, known.__annotations__)


def lock(
    name: str,
    using: str = DEFAULT_ALIAS,
    *,
    release_on_commit: bool | str = False,
    **options: Unpack[LockKwargs],
) -> Lock:
    """A lock with one holder at a time. It is not reentrant: see `rlock`.

    ``release_on_commit``: a lock that is released within a database transaction stays held until the transaction is
    committed or rolled back (``True``: a transaction of the default database; or a database's alias). Coroutines have
    no transactions, so the option has no effect there.
    """
    check_options("lock", options)
    made = locks[using].lock(name, **options)
    if not release_on_commit:
        return made
    return CommitLock.like(made, DEFAULT_DB_ALIAS if release_on_commit is True else release_on_commit)


def fair_lock(
    name: str,
    using: str = DEFAULT_ALIAS,
    *,
    release_on_commit: bool | str = False,
    **options: Unpack[CommonOptions],
) -> Lock:
    """A lock that is granted strictly in the order of arrival: ``lock(..., fair=True)``."""
    check_options("fair_lock", options, CommonOptions)
    return lock(name, using, release_on_commit=release_on_commit, fair=True, **options)


def rlock(name: str, using: str = DEFAULT_ALIAS, **options: Unpack[CommonOptions]) -> RLock:
    """A reentrant lock: the thread or asyncio task that holds it may acquire it again."""
    check_options("rlock", options, CommonOptions)
    return locks[using].rlock(name, **options)


def semaphore(name: str, using: str = DEFAULT_ALIAS, *, limit: int, **options: Unpack[CommonOptions]) -> Semaphore:
    """A lock with up to ``limit`` holders at once."""
    check_options("semaphore", options, CommonOptions)
    return locks[using].semaphore(name, limit=limit, **options)


def rwlock(name: str, using: str = DEFAULT_ALIAS, **options: Unpack[CommonOptions]) -> RWLock:
    """A pair of locks: many hold ``.read`` at once, or one holds ``.write``."""
    check_options("rwlock", options, CommonOptions)
    return locks[using].rwlock(name, **options)


def striped(
    name: str,
    stripes: int,
    using: str = DEFAULT_ALIAS,
    *,
    without: Collection[int] = (),
    **options: Unpack[CommonOptions],
) -> Striped:
    """Any free one of ``stripes`` locks; ``without`` excludes some of them by index."""
    check_options("striped", options, CommonOptions)
    return locks[using].striped(name, stripes, without=without, **options)


def multilock(names: Iterable[str], using: str = DEFAULT_ALIAS, **options: Unpack[CommonOptions]) -> MultiLock:
    """All of the locks ``names`` or none of them."""
    check_options("multilock", options, CommonOptions)
    return locks[using].multilock(names, **options)
