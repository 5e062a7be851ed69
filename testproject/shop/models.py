"""What is sold, how much of it is left, and to whom it went."""

from django.db import models


class Product(models.Model):
    """Something to sell. `handling` is the seconds that one order keeps the shop busy between reading and writing."""

    sku = models.SlugField(unique=True)
    title = models.CharField(max_length=100)
    handling = models.FloatField(default=0.005)

    def __str__(self) -> str:
        return self.title


class Stock(models.Model):
    """How many of a product are left: the row that everybody wants at the same moment."""

    product = models.OneToOneField(Product, on_delete=models.CASCADE)
    quantity = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"


class StockSegment(models.Model):
    """A part of what there is of a product. Each has a lock of its own, so that as many can be sold from at once."""

    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="segments")
    stripe = models.PositiveSmallIntegerField()
    quantity = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["product", "stripe"], name="one_segment_a_stripe")]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}, segment {self.stripe}"


class Order(models.Model):
    """One item sold to one buyer. `confirmations` counts how often it was confirmed: once, if all goes well."""

    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    buyer = models.CharField(max_length=100)
    created = models.DateTimeField(auto_now_add=True)
    confirmations = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.product} for {self.buyer}"
