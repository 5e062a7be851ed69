"""A protected task for type checkers. Each ignored error must occur (`tests/django/test_typing.py`)."""

from typing import Any, assert_type

from celery import Task, shared_task

from django_redlock.celery import Conflict, single_instance_task


@shared_task
@single_instance_task
def bare(order_id: int, force: bool = False) -> str:
    return f"{order_id} {force}"


@shared_task(bind=True)
@single_instance_task(mode="until_executed", key="settle:{order_id}", on_conflict=("skip", "raise"), ttl=30)
def bound(self: Task[Any, Any], order_id: int) -> str:
    return f"{order_id} {self.name}"


def decide(conflict: Conflict) -> str:
    return "raise" if conflict.state == "running" else "skip"


single_instance_task(on_conflict=decide)(bare)
assert_type(bare(1, force=True), str)
assert_type(bare.delay(1).get(), str)
bare.delay("1")  # type: ignore[arg-type]
bare.delay(1, z=3)  # type: ignore[call-arg]
bare("1")  # type: ignore[arg-type]
single_instance_task(mode="sometimes")  # type: ignore[call-overload]
single_instance_task(on_conflict="ignore")  # type: ignore[call-overload]
single_instance_task(time=3)  # type: ignore[call-overload]
