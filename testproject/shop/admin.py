from django.contrib import admin

from testproject.shop.models import Order, Product, Stock


class StockInline(admin.TabularInline[Stock, Product]):
    model = Stock


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin[Product]):
    list_display = ["title", "sku", "handling", "stock"]
    inlines = [StockInline]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin[Order]):
    list_display = ["product", "buyer", "created", "confirmations"]
    list_filter = ["product"]
