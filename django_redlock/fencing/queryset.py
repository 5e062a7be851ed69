"""`FencedQuerySet`: ``Stock.objects.fenced(held)`` writes rows under the lock ``held``, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import connections, models, transaction
from django.db.models.utils import resolve_callables

from ..errors import LockNotHeld
from .tokens import FIELD, FencingLock, FencingToken, fencing_token_of, handle_of

M = TypeVar("M", bound=models.Model)


class FencedQuerySet(models.QuerySet[M]):
    """The queryset of a `FencedModel`. Without ``fenced()``, writes work as in Django and leave the fences unchanged.

    For a model with ``fence_required``, updates and deletes without ``fenced()`` raise ``LockNotHeld``.
    """

    _lock: FencingLock | int | None = None

    def fenced(self, lock: FencingLock | int) -> Self:
        """Return a queryset whose ``update``, ``delete``, ``claim`` and create methods write under ``lock``.

        If a row has a larger fence, the whole write raises ``StaleLock`` and changes nothing. The lock is checked now
        and at each write. Raises ``LockNotHeld`` when the lock is not held, ``StaleLock`` (a kind of ``LockLost``) when
        the lock has been lost, ``TypeError`` when ``lock`` has no fencing token.
        """
        fencing_token_of(lock)
        made: Self = self.all()
        made._lock = handle_of(lock)
        return made

    def _clone(self) -> Self:
        made: Self = super()._clone()  # type: ignore[misc]
        made._lock = self._lock
        return made

    def update(self, **values: Any) -> int:
        """Update the rows as Django does, after setting their fences in the same transaction.

        Setting the fences locks the rows in the database, so that no other transaction can write before the update.
        Raises ``StaleLock`` when a row has a larger fence, ``TypeError`` when ``values`` contains ``fence``.
        """
        fence = self._token()
        if fence is None:
            return super().update(**values)
        if FIELD in values:
            raise TypeError(f"{FIELD} is set by the lock")
        with self._transaction():
            updated = self._claimed(fence).update(**values)
        self._result_cache = None
        return updated

    def bulk_update(self, *args: Any, **kwargs: Any) -> int:
        """Update the rows as Django does. Django calls `update` for each batch; all batches are one transaction."""
        if self._lock is None:
            return super().bulk_update(*args, **kwargs)
        with self._transaction():
            return super().bulk_update(*args, **kwargs)

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete the rows as Django does. Raises ``StaleLock`` when a row has a larger fence."""
        fence = self._token()
        if fence is None:
            return super().delete()
        with self._transaction():
            deleted = self._claimed(fence).delete()
        self._result_cache = None
        return deleted

    delete.queryset_only = True  # type: ignore[attr-defined]

    def claim(self, *args: Any, **kwargs: Any) -> M:
        """Raise the fence of one object to the token of the lock, then return the object, as ``get()`` does.

        Afterwards no earlier holder can change the object. After a plain ``get()``, a paused earlier holder could still
        write until this holder has written. Raises ``StaleLock``, ``LockNotHeld`` and the errors of ``get()``.
        """
        if self._lock is None:
            raise self._unfenced()
        fence = fencing_token_of(self._lock)
        with self._transaction():
            wanted = self.filter(*args, **kwargs)
            wanted._claimed(fence)
            return wanted.get()

    claim.alters_data = True  # type: ignore[attr-defined]

    async def aclaim(self, *args: Any, **kwargs: Any) -> M:
        """`claim` for asyncio."""
        return await sync_to_async(self.claim)(*args, **kwargs)

    aclaim.alters_data = True  # type: ignore[attr-defined]

    def create(self, **kwargs: Any) -> M:
        """Create an object as Django does, with the lock's fencing token as its fence."""
        if self._lock is None:
            return super().create(**kwargs)
        made: Any = self.model(**kwargs)
        self._for_write = True
        made.save(lock=self._lock, force_insert=True, using=self.db)
        return cast("M", made)

    def update_or_create(
        self,
        defaults: Mapping[str, Any] | None = None,
        create_defaults: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> tuple[M, bool]:
        """Update or create an object as Django does, but with `claim` instead of ``SELECT FOR UPDATE``."""
        if self._lock is None:
            return super().update_or_create(defaults, create_defaults, **kwargs)
        with self._transaction():
            found, created = self.get_or_create(defaults if create_defaults is None else create_defaults, **kwargs)
            if created:
                return found, True
            row: Any = self.claim(pk=found.pk)
            for name, value in resolve_callables(defaults or {}):
                setattr(row, name, value)
            row.save(lock=self._lock, using=self.db)
        return row, False

    def bulk_create(self, objs: Iterable[M], *args: Any, **kwargs: Any) -> list[M]:
        """Create objects as Django does, with the lock's fencing token as their fence.

        Raises ``TypeError`` for ``update_conflicts``, which would overwrite rows without checking their fences.
        """
        guarded = self._lock is not None or self.model.fence_required  # type: ignore[attr-defined]
        if guarded and (kwargs.get("update_conflicts") or len(args) > 2):
            raise TypeError("bulk_create(update_conflicts=True) would overwrite rows without looking at their fences")
        if self._lock is not None:
            fence, objs = fencing_token_of(self._lock), list[Any](objs)
            for each in objs:
                each.fence = fence.token
        return super().bulk_create(objs, *args, **kwargs)

    # ── the fence ────────────────────────────────────────────────────────────────────────────

    def _token(self) -> FencingToken | None:
        if self._lock is not None:
            return fencing_token_of(self._lock)
        if self.model.fence_required:  # type: ignore[attr-defined]
            raise self._unfenced()
        return None

    def _transaction(self) -> transaction.Atomic:
        self._for_write = True
        return transaction.atomic(using=self.db)

    def _unfenced(self) -> LockNotHeld:
        return LockNotHeld("", f"{self.model._meta.label} must be written under a lock: fenced(lock)")

    def _claimed(self, fence: FencingToken) -> models.QuerySet[M]:
        """Raise the fences of the rows to ``fence``, which locks the rows in the database until the transaction ends.

        Returns the rows as a plain Django queryset. Raises ``StaleLock`` if a row has a larger fence.
        """
        home = home_of(self.model)
        keys: Any = self.order_by().values_list(home._meta.pk.attname, flat=True)
        if not connections[self.db].features.update_can_self_select:
            keys = list(keys)
        # The UPDATE waits for a row that another transaction writes. Then the database checks the WHERE again (READ
        # COMMITTED), but not a subquery: so the condition on the fence stands beside the subquery, not in it.
        older = models.QuerySet[Any](home, using=self.db).filter(pk__in=keys, **{f"{FIELD}__lte": fence.token})
        older.update(**{FIELD: fence.token})
        rows: models.QuerySet[M] = models.QuerySet(self.model, self.query.chain(), self.db)
        later = rows.filter(**{f"{FIELD}__gt": fence.token}).order_by(f"-{FIELD}").values_list("pk", FIELD).first()
        if later is not None:
            raise fence.refusal(f"{self.model._meta.label} {later[0]!r}", later[1])
        return rows.filter(**{FIELD: fence.token})


def home_of(model: type[models.Model]) -> type[models.Model]:
    """Return the model whose table has the ``fence`` column: ``model`` itself or a parent model."""
    return model._meta.get_field(FIELD).model


FencedManager = models.Manager.from_queryset(FencedQuerySet)
