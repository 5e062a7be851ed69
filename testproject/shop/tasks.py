"""Celery tasks of the shop that run after a sale."""

import time

from celery import shared_task
from django.conf import settings
from django.db.models import F

from django_redlock.celery import single_instance_task
from testproject.shop.models import Order

STORE = "tasks" if "tasks" in settings.REDLOCK else "default"


@shared_task
@single_instance_task(mode="until_executed", key="confirm:{order_id}", using=STORE)
def confirm(order_id: int) -> None:
    """Send a confirmation to the buyer. The task is slow, and must not run twice."""
    time.sleep(0.1)
    Order.objects.filter(pk=order_id).update(confirmations=F("confirmations") + 1)
