"""The shop's JSON interface. `buy` and `buy_unlocked` differ in one line: the decorator."""

import time

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from django_redlock.celery import is_duplicate
from django_redlock.decorators import locked_view
from django_redlock.errors import LockUnavailable
from testproject.shop.models import Order, Stock
from testproject.shop.tasks import confirm


@csrf_exempt
@require_POST
@locked_view("stock:{sku}", ttl=10, blocking_timeout=5)
def buy(request: HttpRequest, sku: str) -> JsonResponse:
    """Sell one item, one buyer at a time: 201, 409 (try again later) or 410 (sold out)."""
    return sell(request, sku)


@csrf_exempt
@require_POST
def buy_unlocked(request: HttpRequest, sku: str) -> JsonResponse:
    """The same without the lock: sells what it does not have."""
    return sell(request, sku)


def sell(request: HttpRequest, sku: str) -> JsonResponse:
    """Read the stock, be busy, write the stock: right only when nobody else does the same in between."""
    stock = get_object_or_404(Stock.objects.select_related("product"), product__sku=sku)
    if not stock.quantity:
        return JsonResponse({"error": "sold out"}, status=410)
    time.sleep(stock.product.handling)
    with transaction.atomic():
        stock.quantity -= 1
        stock.save(update_fields=["quantity"])
        order = Order.objects.create(product=stock.product, buyer=request.POST.get("buyer", "anonymous"))
    return JsonResponse({"order": order.pk, "left": stock.quantity}, status=201)


@csrf_exempt
@require_POST
def request_confirmation(request: HttpRequest, order_id: int) -> JsonResponse:
    """Have the order confirmed, once however often the buyer asks while that is under way."""
    order = get_object_or_404(Order, pk=order_id)
    try:
        result = confirm.delay(order.pk)
    except LockUnavailable:
        return JsonResponse({"error": "try again later"}, status=503, headers={"Retry-After": "1"})
    return JsonResponse({"task": result.id, "duplicate": is_duplicate(result)}, status=202)


@require_GET
def stock(request: HttpRequest, sku: str) -> JsonResponse:
    """How many are left and how many were sold."""
    left = get_object_or_404(Stock, product__sku=sku)
    return JsonResponse({"left": left.quantity, "sold": Order.objects.filter(product=left.product_id).count()})
