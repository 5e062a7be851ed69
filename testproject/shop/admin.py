from django.contrib import admin

from testproject.shop.models import Order, Product, Stock


class StockInline(admin.TabularInline):
    model = Stock


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ["title", "sku", "handling", "stock"]
    inlines = [StockInline]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["product", "buyer", "created", "confirmations"]
    list_filter = ["product"]
