"""Handles that stand for several locks, and forward each call to the lock of the calling thread or task."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import wraps
from typing import Any

from .lock import Lock


def forward_members(handle: type, lock: type[Lock], private: Iterable[str] = ()) -> None:
    """Give ``handle`` the public members of ``lock`` that it lacks, and ``private`` ones: those of `own_handle()`."""
    for name in dir(lock):
        if name in private or not (name.startswith("_") or hasattr(handle, name)):
            setattr(handle, name, _forwarded(name, getattr(lock, name)))


def _forwarded(name: str, member: Any) -> Any:
    """The same member of `own_handle()`, which is looked up when the member is called."""
    if isinstance(member, property):
        return property(lambda self: getattr(self.own_handle(), name), doc=member.__doc__)
    if inspect.iscoroutinefunction(member):

        async def atwin(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await getattr(self.own_handle(), name)(*args, **kwargs)

        return wraps(member)(atwin)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.own_handle(), name)(*args, **kwargs)

    return wraps(member)(forward)
