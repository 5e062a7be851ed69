"""Models for products, their stock, and orders."""

from django.db import models


class Product(models.Model):
    """A product. `handling`: seconds that one order takes between reading and writing the stock."""

    sku = models.SlugField(unique=True)
    title = models.CharField(max_length=100)
    handling = models.FloatField(default=0.005)

    def __str__(self) -> str:
        return self.title


class Stock(models.Model):
    """The stock of a product. All concurrent orders update this row."""

    product = models.OneToOneField(Product, on_delete=models.CASCADE)
    quantity = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"


class StockSegment(models.Model):
    """A part of a product's stock.

    Each segment has its own lock, so that orders of different segments run in parallel.
    """

    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="segments")
    stripe = models.PositiveSmallIntegerField()
    quantity = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["product", "stripe"], name="one_segment_a_stripe")]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}, segment {self.stripe}"


class Order(models.Model):
    """One item sold to one buyer. `confirmations` counts the confirmations, and should be 1."""

    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    buyer = models.CharField(max_length=100)
    created = models.DateTimeField(auto_now_add=True)
    confirmations = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.product} for {self.buyer}"
