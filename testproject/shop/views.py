"""The shop's JSON interface. `buy` and `buy_unlocked` differ only in the decorator."""

import time
from collections.abc import Callable

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from django_redlock.celery import is_duplicate
from django_redlock.core.locks.semaphore import Striped
from django_redlock.decorators import locked_view
from django_redlock.errors import LockUnavailable
from testproject.shop.models import Order, Stock, StockSegment
from testproject.shop.tasks import confirm


@csrf_exempt
@require_POST
@locked_view("stock:{sku}", ttl=10, blocking_timeout=5)
def buy(request: HttpRequest, sku: str) -> JsonResponse:
    """Sell one item under the lock. Answers 201, 409 (try again later) or 410 (sold out)."""
    return sell(request, stock_of(sku))


@csrf_exempt
@require_POST
def buy_unlocked(request: HttpRequest, sku: str) -> JsonResponse:
    """Sell one item without the lock. It oversells."""
    return sell(request, stock_of(sku))


def buy_from(stripes: int) -> Callable[..., JsonResponse]:
    """Returns a view for a product with `stripes` stock segments, which serves as many buyers in parallel."""

    @csrf_exempt
    @require_POST
    @locked_view("stock:{sku}", stripes=stripes, ttl=10, blocking_timeout=5)
    def buy_striped(request: HttpRequest, sku: str) -> JsonResponse:
        """Sell one item from the segment whose stripe was acquired. If it is sold out, switch to another segment."""
        lock: Striped = request.lock  # type: ignore[attr-defined]
        segments = StockSegment.objects.select_related("product").filter(product__sku=sku)
        while not (segment := get_object_or_404(segments, stripe=lock.stripe)).quantity:
            dry = segments.filter(quantity=0).values_list("stripe", flat=True)
            if not lock.switch(without=dry):
                break
        return sell(request, segment)

    return buy_striped


def stock_of(sku: str) -> Stock:
    """Returns the stock row of a product."""
    return get_object_or_404(Stock.objects.select_related("product"), product__sku=sku)


def sell(request: HttpRequest, stock: Stock | StockSegment) -> JsonResponse:
    """Read the stock, spend the handling time, write the stock. Correct only without a concurrent order."""
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
    """Submit the confirmation of the order. Further requests are duplicates while the confirmation is under way."""
    order = get_object_or_404(Order, pk=order_id)
    try:
        result = confirm.delay(order.pk)
    except LockUnavailable:
        return JsonResponse({"error": "try again later"}, status=503, headers={"Retry-After": "1"})
    return JsonResponse({"task": result.id, "duplicate": is_duplicate(result)}, status=202)


@require_GET
def stock(request: HttpRequest, sku: str) -> JsonResponse:
    """Returns how many items are left and how many were sold."""
    left = get_object_or_404(Stock, product__sku=sku)
    return JsonResponse({"left": left.quantity, "sold": Order.objects.filter(product=left.product_id).count()})
