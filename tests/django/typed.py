"""A user's code for type checkers. Each ignored error must occur (`test_typing.py`)."""

from datetime import timedelta
from typing import Any, assert_type

from celery import shared_task
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from django_redlock import fair_lock, lock, locks, multilock, rlock, rwlock, semaphore, striped
from django_redlock.celery import is_duplicate, single_instance_task
from django_redlock.decorators import IdempotentRequest, LockedRequest, StripedRequest, idempotent, locked, locked_view


@locked_view("stock:{sku}", ttl=10)
def buy(request: LockedRequest, sku: str) -> JsonResponse:
    return JsonResponse({"bought": sku, "fencing_token": request.lock.fencing_token})


@locked_view("stock:{sku}", stripes=8)
async def sell(request: StripedRequest, sku: str) -> HttpResponse:
    return HttpResponse(f"{request.lock.stripe} {sku}")


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.lock.name)  # type: ignore[attr-defined]


@idempotent(database="default", keep=timedelta(hours=1), scope=lambda request: request.headers.get("X-Client"))
def pay(request: IdempotentRequest) -> HttpResponse:
    return HttpResponse(request.idempotency_key)


urlpatterns = [path("buy/<sku>/", buy), path("sell/<sku>/", sell), path("pay/", pay)]


@shared_task
@single_instance_task(key="settle:{order_id}")
def settle(order_id: int) -> str:
    return str(order_id)


@locked("report:{report_id}")
def report(report_id: int) -> str:
    return str(report_id)


def submit() -> bool:
    result = settle.delay(17)
    assert_type(is_duplicate(result), bool)
    return is_duplicate(result)


def hold() -> Any:
    with (
        lock("a", ttl=10) as held,
        fair_lock("b"),
        rlock("c", "default"),
        semaphore("d", limit=3),
        rwlock("e", using="default").read,
        multilock(["f", "g"], blocking_timeout=5),
        striped("h", 8, without=[1]) as segment,
    ):
        assert_type(held.remaining, float)
        return segment.stripe


assert_type(report(1), str)
report("1")  # type: ignore[arg-type]
lock("a", timeout=5)  # type: ignore[call-arg]
idempotent(in_doubt="maybe")  # type: ignore[arg-type]
semaphore("d")  # type: ignore[call-arg]
locks["default"].lock("a", timeout=5)  # type: ignore[arg-type]
locks["default"].semaphore("a", limit=2, tll=5)  # type: ignore[call-arg]
lock("a").acquire(blocking_timeout=5)  # type: ignore[call-arg]
