"""Fenced models of every shape. Tests create their tables in their databases."""

import uuid

from django.db import models

from django_redlock.fencing import FencedManager, FencedModel


class Plain(models.Model):
    class Meta:
        abstract = True
        app_label = "fencing"  # test modules import this whether the app is installed or not

    def __str__(self) -> str:
        return f"{self._meta.label} {self.pk}"


class Fenced(FencedModel):
    class Meta(Plain.Meta):
        abstract = True


class Shop(Plain):
    name = models.CharField(max_length=20)


class Stock(Fenced):
    shop = models.ForeignKey(Shop, on_delete=models.CASCADE, null=True)
    sku = models.CharField(max_length=40, unique=True, default=uuid.uuid4)
    quantity = models.IntegerField(default=0)


class Shelf(Fenced):
    """A model with a natural key."""

    code = models.CharField(max_length=20, primary_key=True)
    quantity = models.IntegerField(default=0)


class Parcel(Fenced):
    """A model with a generated key."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    stock = models.ForeignKey(Stock, on_delete=models.CASCADE, null=True)
    address = models.CharField(max_length=20)


class Account(Fenced):
    """A model with ``fence_required``."""

    fence_required = True

    number = models.IntegerField(unique=True)
    balance = models.IntegerField(default=0)


class Savings(Account):
    """The fence is in the parent's table."""

    rate = models.IntegerField(default=0)


class Machine(Plain):
    machine_id = models.AutoField(primary_key=True)
    title = models.CharField(max_length=20)


class Press(Machine, Fenced):
    """The fence is in the child's table, which is written after the parent's."""

    force = models.IntegerField(default=0)

    objects = FencedManager()


class HeavyStock(Stock):
    """A proxy of the same table."""

    class Meta:
        proxy = True
        app_label = "fencing"
