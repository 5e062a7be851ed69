"""`FencedModel`, the abstract model with the ``fence`` column."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from asgiref.sync import sync_to_async
from django.db import IntegrityError, models, router, transaction

from ..errors import LockNotHeld, StaleLock
from .queryset import FencedManager, FencedQuerySet, home_of
from .tokens import FIELD, WITHOUT, FencingLock, FencingToken, bound, fencing_token_of


class FencedModel(models.Model):
    """A model whose rows are written under a lock: ``obj.save(lock=held)``, ``objects.fenced(held).update(...)``.

    ``fence`` is the largest fencing token under which the row was written. A write with a smaller token raises
    ``StaleLock`` and changes nothing, because the writer has lost the lock. A write without a lock leaves the fence
    unchanged. With ``fence_required = True`` a write without a lock raises ``LockNotHeld``, except for a new row.
    """

    fence = models.BigIntegerField(default=0, editable=False)

    objects = FencedManager()

    fence_required: ClassVar[bool] = False
    _fence: FencingToken | None = None

    class Meta:
        abstract = True

    def save(self, *args: Any, lock: FencingLock | int = WITHOUT, **kwargs: Any) -> None:
        """Save the row under ``lock``, a held lock or a fencing token. The UPDATE statement checks the fence.

        Raises ``StaleLock`` when the row has a larger fence, when the row has been deleted, or when the lock has been
        lost; ``LockNotHeld`` when the lock is not held. The other arguments are Django's, given by name.
        """
        if lock is WITHOUT:
            super().save(*args, **kwargs)
            return
        fence = fencing_token_of(lock)
        if kwargs.get("update_fields"):
            kwargs["update_fields"] = {*kwargs["update_fields"], FIELD}
        before = {FIELD: vars(self)[FIELD]} if FIELD in vars(self) else {}
        self._fence, self.fence = fence, fence.token
        try:
            self._save_under(*args, **kwargs)
        except BaseException:
            # The row was not written, so the object gets its previous fence back. A deferred field stays deferred.
            vars(self).pop(FIELD, None)
            vars(self).update(before)
            raise
        finally:
            vars(self).pop("_fence", None)

    async def asave(self, *args: Any, **kwargs: Any) -> None:
        """`save` for asyncio."""
        await sync_to_async(self.save)(*args, **bound(kwargs))

    def delete(self, *args: Any, lock: FencingLock | int = WITHOUT, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete the row under ``lock``, and the rows that the delete cascades to. Raises the errors of `save`."""
        if lock is WITHOUT:
            if self.fence_required:
                raise self._unfenced("delete")
            return super().delete(*args, **kwargs)
        fence, using = fencing_token_of(lock), self._written_to(**kwargs)
        with transaction.atomic(using=using):
            self._row(using)._claimed(fence)
            return super().delete(*args, **kwargs | {"using": using})

    async def adelete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """`delete` for asyncio."""
        return await sync_to_async(self.delete)(*args, **bound(kwargs))

    def refresh_from_db(self, *args: Any, lock: FencingLock | int = WITHOUT, **kwargs: Any) -> None:
        """Read the row again. With ``lock``, first raise the row's fence, so that earlier holders can't write it.

        Raises the errors of `save`.
        """
        if lock is WITHOUT:
            super().refresh_from_db(*args, **kwargs)
            return
        fence, using = fencing_token_of(lock), self._written_to(**kwargs)
        with transaction.atomic(using=using):
            self._row(using)._claimed(fence)
            super().refresh_from_db(*args, **kwargs | {"using": using})

    async def arefresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        """`refresh_from_db` for asyncio."""
        await sync_to_async(self.refresh_from_db)(*args, **bound(kwargs))

    # ── implementation ───────────────────────────────────────────────────────────────────────

    def _written_to(self, using: str | None = None, **_others: Any) -> str:
        return using or router.db_for_write(type(self), instance=self)

    def _row(self, using: str) -> FencedQuerySet[Self]:
        return FencedQuerySet(type(self), using=using).filter(pk=self.pk)

    def _save_under(self, **kwargs: Any) -> None:
        using = self._written_to(**kwargs)
        # For a new object with a primary key, Django tries UPDATE, then INSERT. The INSERT fails if another process has
        # inserted the row meanwhile; the second save() then updates that row.
        may_exist = self._state.adding and self.pk is not None and not kwargs.get("force_insert")
        guard = transaction.atomic if may_exist or self._meta.parents else _nothing_written
        try:
            with guard(using):
                super().save(**kwargs)
        except IntegrityError:
            if not (may_exist and self._row(using).exists()):
                raise
            with guard(using):
                super().save(**kwargs)

    def _do_update(
        self, base_qs: Any, using: Any, pk_val: Any, values: Any, fields: Any, forced: Any, *args: Any
    ) -> Any:
        """Update the row in one table, unless its fence is larger. Overrides the hook that Django's ``save()`` calls.

        Returns a true value if a row was updated. Raises ``StaleLock`` if the row has a larger fence or was deleted,
        ``LockNotHeld`` for a write without a lock that ``fence_required`` forbids.
        """
        ours = base_qs.model is home_of(type(self))
        if self._fence is None:
            if self.fence_required and (forced or not self._state.adding):
                raise self._unfenced("save")
            if self.fence_required and ours:
                return []  # Django then inserts the row, and an existing row raises IntegrityError
            others = [value for value in values if value[0].name != FIELD]
            return super()._do_update(base_qs, using, pk_val, others, fields, forced, *args)
        if not ours:
            return super()._do_update(base_qs, using, pk_val, values, fields, forced, *args)
        older = base_qs.filter(**{f"{FIELD}__lte": self._fence.token})
        updated = super()._do_update(older, using, pk_val, values, fields, forced, *args)
        if not updated:
            found = base_qs.filter(pk=pk_val).values_list(FIELD, flat=True).first()
            # A new object, and no row with a larger fence: Django inserts next. If an earlier holder has inserted the
            # row meanwhile, the INSERT fails and `_save_under` saves again.
            if not self._state.adding or (found is not None and found > self._fence.token):
                raise self._fence.refusal(f"{self._meta.label} {pk_val!r}", found)
        return updated

    def _unfenced(self, what: str) -> LockNotHeld:
        return LockNotHeld("", f"{self._meta.label} must be written under a lock: {what}(lock=...)")


@contextlib.contextmanager
def _nothing_written(using: str) -> Iterator[None]:
    """Context manager: let an enclosing transaction continue after a ``StaleLock`` in the block.

    Django marks the transaction for rollback after any exception, but a refused write has changed nothing.
    """
    connection = transaction.get_connection(using)
    doomed = connection.needs_rollback
    try:
        yield
    except StaleLock:
        connection.needs_rollback = doomed
        raise
