"""A table of charges: it shows how often a view has done its work."""

from django.db import models


class Charge(models.Model):
    """One charge for an order."""

    order = models.CharField(max_length=100)

    class Meta:
        app_label = "redlock_idempotency_tests"

    def __str__(self):
        return self.order
