"""`HeldLock`: the model for the admin's list of locks and for the permissions of this list.

It has no table: `admin.queryset` reads the lock stores instead. The module also exports `FencedModel`, so that one
module has all models of the package.
"""

from __future__ import annotations

from typing import Self
from urllib.parse import quote, unquote

from django.db import models
from django.utils.translation import gettext_lazy

from .core.lock_info import LockInfo
from .fencing import FencedModel
from .formatting import printable, printable_lock

__all__ = ["FencedModel", "HeldLock", "make_pk", "parse_pk"]


class NoRows(models.Manager["HeldLock"]):
    """The manager of `HeldLock`. Its querysets are empty, so ``dumpdata`` does not read a table that does not exist."""

    def get_queryset(self) -> models.QuerySet[HeldLock]:
        return super().get_queryset().none()


class HeldLock(models.Model):
    """A lock that is held now.

    The permission ``view_heldlock`` is needed to see the lock, ``delete_heldlock`` to release it by force. All texts
    are `printable`, except for ``held.name``, which is the unchanged name.
    """

    id = models.CharField(primary_key=True, max_length=1024, editable=False)
    alias = models.CharField(gettext_lazy("store"), max_length=100, editable=False)
    name = models.CharField(max_length=512, editable=False)
    held: LockInfo

    objects = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"  # for `dumpdata --all`
        default_permissions = ("view", "delete")
        verbose_name = gettext_lazy("held lock")
        verbose_name_plural = gettext_lazy("held locks")

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of(cls, alias: str, held: LockInfo) -> Self:
        """Return the model instance for ``held``, a lock of the store ``alias``."""
        row = cls(id=make_pk(alias, held.name), alias=alias, name=printable(held.name))
        row.held = printable_lock(held)
        return row


def make_pk(alias: str, name: str) -> str:
    """Return the primary key of a lock: the store's alias, a colon and the lock's name, both URL-quoted.

    They are quoted because browsers change line breaks in forms, and PostgreSQL can't store NUL.
    """
    return f"{quote(alias, safe='')}:{quote(name, safe=':/')}"


def parse_pk(pk: str) -> tuple[str, str]:
    """Return both parts of a primary key that `make_pk` made: the store's alias and the lock's name."""
    alias, _, name = pk.partition(":")
    return unquote(alias), unquote(name)
