"""`HeldLock`: what permissions and the admin hang on. It has no table; its rows come from the stores (see `rows`).

`FencedModel` can be had from here too, where models are looked for.
"""

from __future__ import annotations

from typing import Any, Self
from urllib.parse import quote, unquote

from django.db import models

from .core.lock_info import LockInfo
from .fencing import FencedModel

__all__ = ["FencedModel", "HeldLock", "make_pk", "parse_pk"]


class HeldLock(models.Model):
    """A lock that somebody holds now. ``view_heldlock`` shows it, ``delete_heldlock`` releases it by force."""

    id = models.CharField(primary_key=True, max_length=1024, editable=False)
    alias = models.CharField("store", max_length=100, editable=False)
    name = models.CharField(max_length=512, editable=False)
    held: LockInfo

    class Meta:
        managed = False
        default_permissions = ("view", "delete")
        verbose_name = "held lock"
        verbose_name_plural = "held locks"

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: a lock is acquired, not saved. Raises ``TypeError``."""
        raise TypeError("a lock is acquired, not saved")

    @classmethod
    def of(cls, alias: str, held: LockInfo) -> Self:
        """The row for ``held``, a lock of the store ``alias``."""
        row = cls(id=make_pk(alias, held.name), alias=alias, name=held.name)
        row.held = held
        return row


def make_pk(alias: str, name: str) -> str:
    """One text for alias and name."""
    return f"{quote(alias, safe='')}:{name}"


def parse_pk(pk: str) -> tuple[str, str]:
    """Alias and name of a text that `make_pk` made."""
    alias, _, name = pk.partition(":")
    return unquote(alias), name
