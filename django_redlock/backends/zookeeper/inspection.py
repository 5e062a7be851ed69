"""Lists, describes and force-releases locks in ZooKeeper.

Functions with a parameter ``until`` raise ``LockUnavailable`` without a reply at that time of the backend's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from urllib.parse import unquote

from ...core.lock_info import LockInfo
from ...core.owner import Owner
from .recipe import Recipe, read_data
from .session import NoZnode


def describe(recipe: Recipe, name: str, until: float) -> LockInfo | None:
    """Return the holder and the waiters of the lock ``name``; ``None`` if its queue is empty."""
    standing = []
    line, session = recipe.children(name, until), recipe.connect()
    pending = [session.send("get", f"{recipe.path(name)}/{child}") for child in line]
    for child, each in zip(line, pending, strict=True):
        with suppress(NoZnode):
            standing.append((child, *read_data(*session.answer(each, until))))
    if not standing:
        return None
    (holder, left, text, since), *waiting = standing
    owner = Owner.parse(text)
    owner = replace(owner, since=since) if owner.since else owner
    return LockInfo(
        name,
        "mutex",
        owner,
        left,
        len(waiting),
        digest=_digest(holder),
        queue=tuple(Owner.parse(text) for _, _, text, _ in waiting),
        holders=(owner,),
    )


def lock_names(recipe: Recipe, until: float) -> Iterable[str]:
    """Return the names of all locks that have a znode. A lock that was just released may still have a znode."""
    try:
        return map(unquote, recipe.ask("get_children", recipe.root, until=until))
    except NoZnode:
        return []


def force_release(recipe: Recipe, name: str, digest: str, until: float) -> bool:
    """Remove the znode of the holder of the lock ``name``. Returns whether the znode was removed.

    ``digest``: as in `Backend.force_release`: if not empty, remove the znode only if the lock still has the same
    holder.
    """
    line = recipe.children(name, until)
    if not line or digest not in ("", _digest(line[0])):
        return False
    try:
        recipe.ask("delete", f"{recipe.path(name)}/{line[0]}", until=until)
    except NoZnode:
        return False
    return True


def _digest(child: str) -> str:
    return child.rpartition("-")[0]
