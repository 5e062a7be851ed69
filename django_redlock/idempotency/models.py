"""`StoredAnswer`: the answer to a request with an idempotency key, in the database that the view writes to."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy


class StoredAnswer(models.Model):
    """The row of one request, written in the transaction of the view.

    The answer is written before the commit, so other transactions never see a row without an answer.
    """

    name = models.CharField(primary_key=True, max_length=100, editable=False)  # hash of user and key
    fingerprint = models.CharField(max_length=64, editable=False)
    answer = models.BinaryField(default=b"")
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        app_label = "redlock_idempotency"
        verbose_name = gettext_lazy("stored answer")
        verbose_name_plural = gettext_lazy("stored answers")

    def __str__(self) -> str:
        return self.name
