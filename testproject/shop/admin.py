from django.contrib import admin

from testproject.shop.models import Order, Product, Stock, StockSegment


class StockInline(admin.TabularInline):
    model = Stock


class StockSegmentInline(admin.TabularInline):
    model = StockSegment
    extra = 0


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ["title", "sku", "handling", "stock"]
    inlines = [StockInline, StockSegmentInline]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ["product", "buyer", "created", "confirmations"]
    list_filter = ["product"]
